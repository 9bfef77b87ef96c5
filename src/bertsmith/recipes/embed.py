"""Vectors of the texts of a file, written to another file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import ConfigError
from bertsmith.inference.features import FeatureConfig, features, width
from bertsmith.layers.after_pooling import Dense, UnitLength
from bertsmith.log import progress, say
from bertsmith.models.model import Model
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.texts import Texts
from bertsmith.recipes.vector_files import check_kind, vector_file
from bertsmith.text.columns import USUAL, Columns
from bertsmith.text.described import without_header
from bertsmith.text.example import Example
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model
from bertsmith.weights.hub import model_folder
from bertsmith.weights.sentence_folder import SentenceSettings, read_sentence_folder


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """A model with the features that are asked of it, as `features` wants them."""

    model: Model
    tokenizer: Tokenizer
    config: FeatureConfig
    after: tuple[Dense | UnitLength, ...] = ()

    @property
    def width(self) -> int:
        """The length of its vectors."""
        return width(self.model, self.config, self.after)


def open_embedder(
    name: str | Path, config: FeatureConfig | None = None, *, prompt: str | None = None
) -> Embedder:
    """The model of a folder, or of `hub:owner/name`, and what to do with it.

    Pooling "auto" is that of the folder.

    A sentence-transformers folder pools, maps and normalises as its files say, and cuts texts where
    they say; a prompt is one of its own by name. Any other folder's pooling is the mean, or the
    last token if its model reads from left to right. With another pooling than "auto" only the
    limit and the prompt are the folder's. Raises `ModelFolderError`, `ConfigError` and what
    `load_model` raises.
    """
    config, folder = config or FeatureConfig(), model_folder(name)
    settings = read_sentence_folder(folder)
    if settings is None:
        if prompt is not None:
            raise ConfigError("only a sentence-transformers folder has prompts", where=folder)
        after: tuple[Dense | UnitLength, ...] = ()
    else:
        after = settings.after if config.pool == "auto" else ()
        unused = [each for each, text in settings.prompts.items() if text]
        if unused and prompt is None and settings.default_prompt is None:
            say(f"{folder}: no prompt is used; it has {', '.join(unused)} (--prompt)")
        config = _by_folder(config, settings, prompt)
    model, tokenizer = load_model(folder if settings is None else settings.network)
    embedder = Embedder(
        model=model, tokenizer=tokenizer, config=config.for_model(model), after=after
    )
    _check_width(embedder, folder)
    return embedder


def _by_folder(
    config: FeatureConfig, settings: SentenceSettings, prompt: str | None
) -> FeatureConfig:
    """The config with what the folder says where nothing else is asked for."""
    pool = "+".join(settings.pool) if config.pool == "auto" else config.pool
    limits = [each for each in (config.longest, settings.longest) if each is not None]
    return replace(
        config,
        pool=pool,
        longest=min(limits) if limits else None,
        lowercase=config.lowercase or settings.lowercase,
        prompt=config.prompt or (settings.prompt(prompt) if config.unit == "text" else ""),
    )


def _check_width(embedder: Embedder, folder: Path) -> None:
    found = width(embedder.model, embedder.config)
    for layer in embedder.after:
        if isinstance(layer, Dense):
            if layer.inputs != found:
                raise ConfigError(
                    f"vectors are {found} wide, and the folder's Dense takes {layer.inputs}",
                    where=folder,
                    remedy="take the last layer, or name a pooling",
                )
            found = layer.outputs


def vectors(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """The vectors of some texts, (texts, width), each as it stands."""
    assert embedder.config.unit == "text", "tokens and words are what `features` gives"
    examples = (
        Example(text=text, text_pair=None, label=None, source="texts", line=line)
        for line, text in enumerate(texts, start=1)
    )
    found = features(
        embedder.model, embedder.tokenizer, examples, embedder.config, after=embedder.after
    )
    rows = [each.vectors for each in found]
    return np.stack(rows) if rows else np.zeros((0, embedder.width), np.float32)


def embed(
    model: str | Path,
    file: str = "-",
    *,
    out: Path,
    config: FeatureConfig | None = None,
    prompt: str | None = None,
    columns: Columns = USUAL,
    device: str = "auto",
) -> None:
    """Write the vectors of texts, in their order, to an .npy, .parquet or .jsonl file.

    Memory does not grow with the number of texts. How many were cut is told at the end.
    """
    check_kind(out)
    if file != "-" and out.resolve() == Path(file).resolve():
        raise ConfigError("--out is the file of the texts", remedy="name another")
    place = device_named(device)
    embedder = open_embedder(model, config, prompt=prompt)
    embedder.model.to(place)
    texts, told = Texts(file, columns), _Told(embedder)
    reading = _Reading(texts)
    if note := without_header(Path(file), columns):
        say(note)
    found = features(
        embedder.model, embedder.tokenizer, reading, embedder.config, after=embedder.after
    )
    with (
        vector_file(out, embedder.width, embedder.config.unit) as vectors,
        progress("embedding", texts.total_bytes, "B") as bar,
    ):
        for each in found:
            vectors.add(each)
            told.count(each.tokens, each.left_out)
            bar.move_to(reading.answered(each.example))
    told.tell(out, texts)


class _Reading:
    """Texts as they are read, and how far the file has been read and answered."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._read = self._answered = 0

    def __iter__(self) -> Iterator[Example]:
        for example in self._texts:
            self._read += len(example.text)
            yield example

    def answered(self, example: Example) -> float:
        """The bytes of the file up to a text that has been answered, about."""
        self._answered += len(example.text)
        # a file is read ahead of the answers, by a megabyte or more
        return self._texts.bytes_read * self._answered / self._read


class _Told:
    """What is told at the end."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._began = time.monotonic()
        self._texts = self._tokens = self._cut = self._left_out = 0

    def count(self, tokens: int, left_out: int) -> None:
        """Count one more text."""
        self._texts += 1
        self._tokens += tokens
        self._left_out += left_out
        self._cut += left_out > 0

    def tell(self, out: Path, texts: Texts) -> None:
        """Say what was written, and what was left out."""
        config, encoder = self._embedder.config, self._embedder.model.config.encoder
        seconds = time.monotonic() - self._began
        say(
            f"{out}: {self._texts:,} texts, {config.pool} of layer {config.layer}, vectors of "
            f"{self._embedder.width}; {self._tokens:,} tokens in {seconds:.1f} s"
        )
        if self._cut:
            limit = min(config.longest or encoder.longest, encoder.longest)
            share = self._left_out / (self._tokens + self._left_out)
            say(
                f"{self._cut:,} of {self._texts:,} texts were longer than {limit} tokens and were "
                f"cut, {100 * share:.1f} % of all tokens; --long windows reads them whole"
            )
        if texts.blank:
            told = "" if out.suffix != ".npy" else ": rows are those of the others"
            say(f"{texts.blank:,} empty lines passed over{told}")
