"""Vectors of texts, of their tokens or of their words, from any layers of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.batches.batch import Batch
from bertsmith.batches.examples import TOKENS_PER_BATCH, EncodedExamples, evaluation_batches
from bertsmith.config import Config
from bertsmith.errors import ConfigError
from bertsmith.evaluation.forward_only import Precision, forward_only
from bertsmith.inference.layer_names import layer_mix
from bertsmith.inference.sequences import Long, ReadText, read_text
from bertsmith.inference.windows import ROWS, text_length, windows
from bertsmith.inference.words import Merging, Words, merged, word_spans
from bertsmith.layers.mix import LayerMix
from bertsmith.layers.pooling import POOLINGS, Pooling, pooled
from bertsmith.models.model import Model
from bertsmith.text.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

Unit = Literal["text", "token", "word"]

_MERGING: dict[str, Merging] = {"word-mean": "mean", "word-first": "first", "word-sum": "sum"}
# bytes of token vectors that are held at once so that they come in the order of the texts
_HELD = 2**27
_NO_SPANS = np.zeros((0, 2), np.int64)


@dataclass(frozen=True, kw_only=True)
class FeatureConfig(Config):
    """What the vectors are of, and what they are made of."""

    layer: str = "last"
    """A layer's number from 0 (embeddings), a name as in `layer_names`, or mix:FILE."""
    pool: str = "auto"
    """Of a text: auto, the folder's own, or else the mean, or of a model that reads from left to
    right its last token; cls, mean, max, mean-sqrt-length,
    weighted-mean, last-token, several with + end to end; pooler, the model's own. Of each token:
    token. Of each word: word-mean, word-first or word-sum of its pieces."""
    words: Words = "blanks"
    """Words are parted by blanks, or marks are words too."""
    normalize: bool = False
    """Whether every vector is brought to length 1."""
    longest: int | None = None
    """Tokens a sequence, special ones included; None for the model's limit."""
    long: Long = "cut"
    """Longer texts are cut, or read in windows whose vectors are averaged by their tokens."""
    lowercase: bool = False
    """Whether texts are lower-cased before they are encoded, whatever the vocabulary."""
    prompt: str = ""
    """Written before every text."""

    def __post_init__(self) -> None:
        known = ("auto", *POOLINGS, "pooler", "token", *_MERGING)
        parts = self.pool.split("+")
        if any(part not in known or (len(parts) > 1 and part not in POOLINGS) for part in parts):
            raise ConfigError(
                f"there is no pooling {self.pool!r}",
                remedy=f"it can be {', '.join(known)}, or several with + between them "
                "from cls to last-token",
            )
        if self.pool == "pooler" and self.layer != "last":
            raise ConfigError("the pooler reads the last layer", remedy="leave the layer out")
        if self.longest is not None and self.longest < 5:
            raise ConfigError(f"longest is {self.longest}", remedy="it must be at least 5 tokens")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The poolings whose results stand end to end."""
        assert self.pool != "auto", "what auto is depends on the model: see `for_model`"
        return tuple(self.pool.split("+"))

    def for_model(self, model: Model) -> FeatureConfig:
        """Return the config with the pooling that suits a model in place of auto."""
        if self.pool != "auto":
            return self
        return replace(self, pool="last-token" if model.config.encoder.causal else "mean")

    @property
    def unit(self) -> Unit:
        """What has a vector: a text, or each of its tokens or words."""
        return "token" if self.pool == "token" else "word" if self.pool in _MERGING else "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFeatures:
    """The vector of a text, (width,), or the vectors of its tokens or words, (rows, width).

    `spans` (rows, 2) are the characters of the text that each row stands for, (0, 0) for special
    tokens, and `names` what they are; both are empty for the vector of a text. `tokens` were read,
    special ones included, and `left_out` were not.
    """

    example: Example
    vectors: NDArray[np.float32]
    spans: NDArray[np.int64]
    names: tuple[str, ...]
    tokens: int
    left_out: int


def features(
    model: Model,
    tokenizer: Tokenizer,
    examples: Iterable[Example],
    config: FeatureConfig | None = None,
    *,
    after: Sequence[nn.Module] = (),
    rows: int = ROWS,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> Iterator[TextFeatures]:
    """The features of a stream of examples, in their order and in constant memory.

    `after` are layers on top of pooled vectors, as some sentence-transformers folders have them.
    What a vector is does not depend on the other examples of its batch. Raises `ConfigError` for a
    layer or a pooler that the model has not, `ExampleError` for pairs where words are asked for.
    """
    config = (config or FeatureConfig()).for_model(model)
    extraction = _Extraction(model, tokenizer, config, after, tokens_per_batch, precision)
    for window in windows(examples, extraction.rows(rows), text_length):
        yield from extraction.of(window)


def width(model: Model, config: FeatureConfig, after: Sequence[nn.Module] = ()) -> int:
    """The length of the vectors; raises `ConfigError` as `features` does."""
    config, encoder = config.for_model(model), model.config.encoder
    mix = layer_mix(config.layer, encoder.layers)
    size = encoder.hidden * mix.parts * len(config.kinds)
    for layer in after:
        size = getattr(layer, "outputs", size)
    return size


class _Extraction:
    """One way to make vectors with one model."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        config: FeatureConfig,
        after: Sequence[nn.Module],
        tokens_per_batch: int,
        precision: Precision,
    ) -> None:
        self._model, self._tokenizer, self._config = model, tokenizer, config
        self._after, self._tokens, self._precision = after, tokens_per_batch, precision
        encoder = model.config.encoder
        self._mix: LayerMix = layer_mix(config.layer, encoder.layers)
        self._width = encoder.hidden * self._mix.parts
        self._longest = min(config.longest or encoder.longest, encoder.longest)
        if config.pool == "pooler" and model.pooler is None:
            raise ConfigError("the model has no pooler", remedy="take another pooling: mean, say")
        lowered = config.lowercase and not tokenizer.lowercase
        if config.unit != "text" and (config.prompt or lowered):
            raise ConfigError(
                f"a {config.unit}'s place is that in the text as it is given",
                remedy="leave the prompt out, and lower-case the text yourself",
            )

    def rows(self, most: int) -> int:
        """How many texts to hold at once."""
        if self._config.unit == "text":
            return most
        return max(1, min(most, _HELD // (4 * self._width * self._longest)))

    def of(self, window: Sequence[Example]) -> list[TextFeatures]:
        """The features of some examples, in their order."""
        spans = self._config.unit != "text"
        texts = [
            read_text(
                self._tokenizer,
                self._as_read(each),
                longest=self._longest,
                long=self._config.long,
                spans=spans,
            )
            for each in window
        ]
        with forward_only(self._model, self._precision):
            found = iter(self._of_sequences(texts))
            own = [[next(found) for _ in text.ids] for text in texts]
            if not spans:
                vectors = self._of_texts(texts, own)
                return [
                    self._features(example, text, vector)
                    for example, text, vector in zip(window, texts, vectors, strict=True)
                ]
        return [self._of_rows(*each) for each in zip(window, texts, own, strict=True)]

    def _as_read(self, example: Example) -> Example:
        """The example with the prompt, and lower-cased where that is asked for."""
        config = self._config
        text, pair = config.prompt + example.text, example.text_pair
        if config.lowercase:
            text, pair = text.lower(), None if pair is None else pair.lower()
        return replace(example, text=text, text_pair=pair)

    def _of_sequences(self, texts: Sequence[ReadText]) -> list[NDArray[np.float32]]:
        """Of every sequence its vector, (width,), or those of its tokens, (length, width)."""
        encoded = EncodedExamples.of(
            [ids for text in texts for ids in text.ids],
            [segments for text in texts for segments in text.segments],
        )
        found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(encoded)
        for indices, packed in evaluation_batches(encoded, tokens_per_batch=self._tokens):
            batch = packed.to(self._model.device)
            vectors = self._of_batch(batch).float().cpu().numpy()
            whole = self._config.unit == "text"
            own = list(vectors) if whole else np.split(vectors, np.cumsum(packed.lengths)[:-1])
            for index, vector in zip(indices.tolist(), own, strict=True):
                found[index] = vector
        return found

    def _of_batch(self, batch: Batch) -> Tensor:
        """Vectors (sequences, width), or (tokens, width) where each token or word has one."""
        if self._config.pool == "pooler":
            return self._model.pooled(self._model.encoder(batch), batch)
        states = self._model.encoder.hidden_states(batch, self._mix.layers[-1])
        hidden = self._mix.mixed(states)
        if self._config.unit != "text":
            return hidden
        return pooled(cast("tuple[Pooling, ...]", self._config.kinds), hidden, batch.offsets)

    def _of_texts(
        self, texts: Sequence[ReadText], own: Sequence[Sequence[NDArray[np.float32]]]
    ) -> NDArray[np.float32]:
        """Vectors (texts, width), windows averaged by their tokens."""
        averaged = [
            np.average(vectors, axis=0, weights=list(map(len, text.ids))).astype(np.float32)
            if len(vectors) > 1
            else vectors[0]
            for text, vectors in zip(texts, own, strict=True)
        ]
        stacked = torch.from_numpy(np.stack(averaged))
        for layer in self._after:
            stacked = layer(stacked)
        return stacked.numpy()

    def _of_rows(
        self, example: Example, text: ReadText, own: Sequence[NDArray[np.float32]]
    ) -> TextFeatures:
        """The features of a text's tokens or words."""
        assert text.spans is not None
        inner = np.concatenate([vectors[1:-1] for vectors in own])
        merging = _MERGING.get(self._config.pool)
        if merging is not None:
            words = word_spans(example.text, self._config.words)
            vectors, spans = merged(inner, text.spans, words, merging)
            names = tuple(example.text[begin:end] for begin, end in spans.tolist())
        else:
            vectors = np.concatenate([own[0][:1], inner, own[-1][-1:]])
            spans = np.pad(text.spans, ((1, 1), (0, 0)))
            pieces = np.concatenate(
                [text.ids[0][:1], *(ids[1:-1] for ids in text.ids), text.ids[-1][-1:]]
            )
            names = tuple(self._tokenizer.vocabulary[piece] for piece in pieces)
        return self._features(example, text, vectors, spans, names)

    def _features(
        self,
        example: Example,
        text: ReadText,
        vectors: NDArray[np.float32],
        spans: NDArray[np.int64] = _NO_SPANS,
        names: tuple[str, ...] = (),
    ) -> TextFeatures:
        if self._config.normalize:
            length = np.linalg.norm(vectors, axis=-1, keepdims=True)
            # as torch and sentence-transformers have it
            vectors = vectors / np.maximum(length, np.float32(1e-12))
        return TextFeatures(
            example=example, vectors=vectors, spans=spans, names=names,
            tokens=text.tokens, left_out=text.left_out,
        )  # fmt: skip
