"""Model folders opened to answer: the model made ready, and the way in which it gives vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.core.errors import ConfigError
from bertsmith.core.log import say
from bertsmith.engine.config import FULL_PRECISION, EngineConfig, FeatureConfig
from bertsmith.engine.devices import device_named
from bertsmith.engine.features import Features, TextFeatures, resolve_pooling, width
from bertsmith.engine.predictor import ROWS, Predictor, windows
from bertsmith.engine.prepared import Prepared, prepare_model
from bertsmith.hub.models import model_folder
from bertsmith.network.model import Model
from bertsmith.network.pooling import AfterPooling, Dense
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import StoredModel, load_prepared, quantized_precision
from bertsmith.weights.sentence_folder import SentenceSettings, read_sentence_folder
from bertsmith.weights.versions import FolderVersion


def open_model(
    folder: Path, device: torch.device, config: EngineConfig
) -> tuple[Prepared, Tokenizer]:
    """Return the model of a folder, made ready to answer, and its tokenizer.

    Raises what `load_prepared` and `prepare_model` raise.
    """
    version = FolderVersion.of(folder)
    sentences = read_sentence_folder(folder)
    quantized = quantized_precision(folder)

    def prepare(stored: StoredModel) -> Prepared:
        model = stored if device.type == "cpu" else stored.whole().to(device)
        return prepare_model(model, config, automatic=quantized)

    opened = load_prepared(folder if sentences is None else sentences.network, prepare)
    # else the tokenizer and the weights may be of two models
    version.check()
    return opened


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """A model ready to answer, and the requested features."""

    engine: Prepared
    tokenizer: Tokenizer
    config: FeatureConfig
    after: tuple[AfterPooling, ...] = ()

    @property
    def width(self) -> int:
        """The length of its vectors."""
        return width(self.engine.model, self.config, self.after)

    def features(self, examples: Iterable[Example]) -> Iterator[TextFeatures]:
        """Yield the features of a stream of examples, as `engine.features.features` does."""
        return self.predictor(examples, rows=self._extraction.rows(ROWS))

    def vectors(self, examples: Iterable[Example]) -> NDArray[np.float32]:
        """Return the vector of each example, (examples, width)."""
        rows = [features.vectors for features in self.features(examples)]
        return np.stack(rows) if rows else np.zeros((0, self.width), np.float32)

    def windows(self, examples: Iterable[Example]) -> Iterator[list[Example]]:
        """Yield the examples that `features` computes together."""
        return windows(examples, self._extraction.rows(ROWS), self._extraction.characters)

    @cached_property
    def _extraction(self) -> Features:
        return Features(self.engine.model, self.tokenizer, self.config, self.after)

    @cached_property
    def predictor(self) -> Predictor[Example, TextFeatures]:
        """The predictor by which the model gives vectors."""
        return self.engine.predictor(self._extraction)


def open_embedder(
    name: str | Path,
    config: FeatureConfig | None = None,
    *,
    prompt: str | None = None,
    engine: EngineConfig = FULL_PRECISION,
    device: str = "cpu",
    loaded: tuple[Prepared, Tokenizer] | None = None,
) -> Embedder:
    """Return the model of a folder, or of `hub:owner/name`, and what to do with it.

    Where the model is `loaded`, only the rest of the folder is read. Raises what `embedder_of`
    raises, and what `read_sentence_folder` and `load_model` raise.
    """
    folder = model_folder(name)
    settings = read_sentence_folder(folder)
    # before the weights are loaded, which may take a minute
    _check_prompt(prompt, settings, folder)
    loaded = loaded or open_model(folder, device_named(device), engine)
    return embedder_of(loaded, settings, config or FeatureConfig(), prompt=prompt, where=folder)


def embedder_of(
    loaded: tuple[Prepared, Tokenizer],
    settings: SentenceSettings | None,
    config: FeatureConfig,
    *,
    prompt: str | None = None,
    where: str | Path,
) -> Embedder:
    """Return a model of a folder, `where`, and what to do with it; `settings` are the folder's.

    Pooling "auto" is that of the folder: one of sentence-transformers pools, maps and normalises as
    its files say, and cuts texts where they say; a prompt is one of its own by name. Any other
    folder's pooling is the mean, or the last token if its model reads from left to right, and texts
    are cut where its tokenizer says. With another pooling only the limit and the prompt are the
    folder's. Raises `ConfigError`.
    """
    _check_prompt(prompt, settings, where)
    if settings is not None and prompt is None:
        _say_prompts(where, config, settings)
    prepared, tokenizer = loaded
    config, layers_after = folder_features(
        config, prepared.model, tokenizer, settings, prompt=prompt, where=where
    )
    return Embedder(engine=prepared, tokenizer=tokenizer, config=config, after=layers_after)


def _check_prompt(name: str | None, settings: SentenceSettings | None, where: str | Path) -> None:
    """Raise `ConfigError` for the name of a prompt that a folder does not have."""
    if name is not None:
        if settings is None:
            raise ConfigError("only a sentence-transformers folder has prompts", where=where)
        settings.prompt(name)


def _say_prompts(folder: str | Path, config: FeatureConfig, settings: SentenceSettings) -> None:
    """Print which prompts of a folder are not used where none is named."""
    unused = [item for item, text in settings.prompts.items() if text]
    if config.unit != "text":
        if settings.prompt(None):
            say(f"{folder}: its prompt is left out: a {config.unit}'s place is in the text alone")
    elif unused and settings.default_prompt is None:
        say(f"{folder}: no prompt is used; it has {', '.join(unused)} (--prompt)")


def folder_features(
    config: FeatureConfig,
    model: Model,
    tokenizer: Tokenizer,
    settings: SentenceSettings | None,
    *,
    prompt: str | None = None,
    where: str | Path,
) -> tuple[FeatureConfig, tuple[AfterPooling, ...]]:
    """Return the features of a folder and the layers after pooling, `settings` being its files'.

    A folder without them reads as many tokens of a text as its tokenizer keeps, or as the model can
    where that number is the one it was fine-tuned with, which is for its answers. Raises
    `ConfigError` for a prompt that there is not, and for a layer that does not fit.
    """
    after: tuple[AfterPooling, ...] = ()
    if settings is not None:
        after = settings.after if config.pool == "auto" else ()
        config = _by_folder(config, settings, prompt)
    else:
        of_answers = tokenizer.longest == model.config.truncated_to
        kept = None if of_answers else tokenizer.longest
        config = replace(config, max_length=_least(config.max_length, kept))
    config = resolve_pooling(config, model)
    _check_width(model, config, after, where)
    return config, after


def _by_folder(
    config: FeatureConfig, settings: SentenceSettings, prompt: str | None
) -> FeatureConfig:
    """Return the config, with defaults from the folder."""
    pool = "+".join(settings.pool) if config.pool == "auto" else config.pool
    # tokens and words are refused a prompt that is named
    used = "" if config.unit != "text" and prompt is None else settings.prompt(prompt)
    return replace(
        config,
        pool=pool,
        max_length=_least(config.max_length, settings.longest),
        lowercase=config.lowercase or settings.lowercase,
        prompt=config.prompt or used,
    )


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _check_width(
    model: Model, config: FeatureConfig, after: tuple[AfterPooling, ...], folder: str | Path
) -> None:
    result = width(model, config)
    for layer in after:
        if isinstance(layer, Dense):
            if layer.inputs != result:
                raise ConfigError(
                    f"vectors are {result} wide, and the folder's Dense takes {layer.inputs}",
                    where=folder,
                    remedy="take the last layer, or name a pooling",
                )
            result = layer.outputs


def vectors(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the vectors of some texts, (texts, width), each as it stands."""
    assert embedder.config.unit == "text", "tokens and words are what `features` gives"
    examples = (
        Example(text=text, text_pair=None, label=None, source="texts", line=line)
        for line, text in enumerate(texts, start=1)
    )
    return embedder.vectors(examples)
