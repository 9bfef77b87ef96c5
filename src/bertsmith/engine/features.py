"""Vectors of texts, of their tokens or of their words, from any layers of a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.batches.examples import EncodedExamples, encode_rows
from bertsmith.batches.truncation import Ids, Segments, encode_pair
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.printable import counted
from bertsmith.engine.answers import FORWARD, Forward, fetched, finite
from bertsmith.engine.config import MERGING, FeatureConfig, Long, Merging, Words
from bertsmith.engine.predictor import (
    ROWS,
    Outputs,
    Predictor,
    Request,
    join_requests,
    split_by_request,
    text_length,
)
from bertsmith.network.batch import Batch
from bertsmith.network.config import VectorPooling
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only
from bertsmith.network.pooling import LayerMix, pooled
from bertsmith.text.examples.example import Example
from bertsmith.tokens.basic import is_ideograph, is_punctuation
from bertsmith.tokens.tokenizer import Tokenizer

_MIX = "mix:"
# Python refuses to read numbers of thousands of digits
_MAX_DIGITS = 18


def _sum(layers: range) -> LayerMix:
    return LayerMix(layers=tuple(layers), weights=(1.0,) * len(layers))


def _single_layer(layer: int) -> LayerMix:
    return LayerMix(layers=(layer,), weights=(1.0,))


NAMED: dict[str, tuple[int, Callable[[int], LayerMix]]] = {
    "embeddings": (0, lambda last: _single_layer(0)),
    "first": (1, lambda last: _single_layer(1)),
    "last": (1, _single_layer),
    "second-to-last": (1, lambda last: _single_layer(last - 1)),
    "sum-last-4": (4, lambda last: _sum(range(last - 3, last + 1))),
    "concat-last-4": (4, lambda last: LayerMix(layers=tuple(range(last - 3, last + 1)))),
    "sum-all": (1, lambda last: _sum(range(1, last + 1))),
}
"""By name, how many layers a mix needs, and the mix of a model that has them.

The rows of Devlin et al. 2018, table 7, and the first layer. Sums are those of the last four and
of all layers without the embeddings.
"""


def layer_mix(name: str, layers: int) -> LayerMix:
    """Return the mix of a name in a model with `layers` layers.

    A name of `NAMED`, a layer's number from 0 (the embeddings), ``mix:FILE`` for a mix that was
    learned and kept as JSON, or ``mix:W,W,...`` for a factor a layer, with the embeddings or
    without. Raises `ConfigError`.
    """
    if name.isdecimal() and len(name) <= _MAX_DIGITS:
        return _checked(_single_layer(int(name)), name, layers)
    if name.startswith(_MIX):
        return _checked(_mix(name.removeprefix(_MIX), layers), name, layers)
    if name not in NAMED:
        names = ", ".join(NAMED)
        raise ConfigError(
            f"there is no layer {name!r}",
            remedy=f"name one of 0 to {layers}, {names}, or mix:FILE, or mix:WEIGHT,WEIGHT,...",
        )
    min_layers, mix = NAMED[name]
    if layers < min_layers:
        raise ConfigError(
            f"layer is {name!r}, and the model has {counted(layers, 'layer')}",
            remedy="name another",
        )
    return mix(layers)


def _mix(value: str, layers: int) -> LayerMix:
    if "," not in value:
        return LayerMix.load(Path(value))
    try:
        weights = tuple(map(float, value.split(",")))
    except ValueError as error:
        raise ConfigError(
            f"{value!r} is not a list of weights", remedy="write mix:0.2,0.3,0.5"
        ) from error
    if len(weights) not in (layers, layers + 1):
        raise ConfigError(
            f"{counted(len(weights), 'weight')} for {counted(layers, 'layer')}",
            remedy=f"give {layers}, or {layers + 1} where the first is of the embeddings",
        )
    return LayerMix(layers=tuple(range(layers + 1 - len(weights), layers + 1)), weights=weights)


def _checked(mix: LayerMix, name: str, layers: int) -> LayerMix:
    if mix.layers[-1] > layers:
        raise ConfigError(
            f"layer {name!r} asks for layer {mix.layers[-1]}, and the model has {layers}",
            remedy=f"they are numbered 0 (embeddings) to {layers}",
        )
    return mix


_STRETCH = re.compile(r"\S+")


def word_spans(text: str, words: Words) -> NDArray[np.int64]:
    """Return the start and end of each word in a text, (words, 2).

    Words are parted by blanks; with "marks" every punctuation mark and every CJK ideograph is a
    word too, as in BERT's BasicTokenizer.
    """
    spans: list[tuple[int, int]] = []
    for stretch in _STRETCH.finditer(text):
        begin, end = stretch.span()
        if words == "marks":
            for position in range(begin, end):
                if is_punctuation(text[position]) or is_ideograph(text[position]):
                    spans += [(begin, position)] if begin < position else []
                    spans.append((position, position + 1))
                    begin = position + 1
        if begin < end:
            spans.append((begin, end))
    return np.array(spans, np.int64).reshape(-1, 2)


def merged(
    vectors: NDArray[np.float32],
    pieces: NDArray[np.int64],
    words: NDArray[np.int64],
    merging: Merging,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return vectors (words, width) of the words that pieces stand for, and their spans (words, 2).

    `vectors` is (pieces, width), `pieces` (pieces, 2) their spans in the order of the text. A piece
    belongs to the word in which it begins, or to the next where that is a blank; a word without a
    piece, one that was cut off say, is left out.
    """
    if not len(pieces) or not len(words):
        return vectors[:0], words[:0]
    number = np.searchsorted(words[:, 1], pieces[:, 0], side="right")
    number = np.minimum(number, len(words) - 1)
    first = np.flatnonzero(np.diff(number, prepend=-1))
    spans = words[number[first]]
    if merging == "first":
        return vectors[first], spans
    sums = np.add.reduceat(vectors, first, axis=0)
    if merging == "sum":
        return sums, spans
    counts = np.diff(first, append=len(pieces)).astype(np.float32)
    return np.divide(sums, counts[:, None], dtype=np.float32), spans


# bytes of token vectors that are held at once so that they come in the order of the texts
_HELD = 2**27
_NO_SPANS = np.zeros((0, 2), np.int64)


def resolve_pooling(config: FeatureConfig, model: Model) -> FeatureConfig:
    """Return the config with the pooling that suits a model in place of auto."""
    if config.pool != "auto":
        return config
    return replace(config, pool="last-token" if model.config.encoder.causal else "mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadText:
    """A text as sequences of token ids with the special tokens around each.

    `ids` and `segments` are (length,) a sequence; `spans` (tokens, 2) are the characters of the
    tokens that are read, without special ones, None if not requested. `left_out` were not.
    """

    ids: list[Ids]
    segments: list[Segments]
    spans: NDArray[np.int64] | None
    left_out: int

    @property
    def tokens(self) -> int:
        """Tokens that are read, special ones included."""
        return sum(map(len, self.ids))


def read_text(
    tokenizer: Tokenizer, example: Example, *, longest: int, long: Long, spans: bool
) -> ReadText:
    """Cut a text to `longest` tokens a sequence; all of it is read if `long` is "windows".

    Windows are of about one length, and begin where words do if possible. Raises
    `ExampleError` for a pair of texts, whose offsets would be ambiguous.
    """
    if example.text_pair is not None:
        return _read_pair(tokenizer, example, longest=longest, alone=spans or long == "windows")
    offsets = None
    if spans:
        encoding = tokenizer.encode_spans(example.text)
        result = encoding.ids
        offsets = np.stack([encoding.starts, encoding.ends], axis=1).astype(np.int64)
    else:
        (result,) = tokenizer.encode([example.text])
    parts = [result[: longest - 2]]
    if long == "windows":
        edges = window_edges(tokenizer.continues[result], longest - 2)
        parts = [result[begin:end] for begin, end in pairwise(edges)]
    read = sum(map(len, parts))
    sequences = [encode_pair(tokenizer, part, None, longest=longest) for part in parts]
    return ReadText(
        ids=[ids for ids, _ in sequences],
        segments=[segments for _, segments in sequences],
        spans=None if offsets is None else offsets[:read],
        left_out=len(result) - read,
    )


def _read_pair(tokenizer: Tokenizer, example: Example, *, longest: int, alone: bool) -> ReadText:
    if alone:
        raise ExampleError(
            "is a pair of texts, but words, tokens and windows need single texts",
            where=example.source,
            line=example.line,
            remedy="name its column with --text-column",
        )
    encoded = encode_rows(tokenizer, [example], longest=longest)
    left_out = 0
    if encoded.cut[0]:
        text_encoding = tokenizer.encode([example.text, example.text_pair or ""])
        left_out = sum(map(len, text_encoding)) + tokenizer.specials_around(pair=True) - longest
    return ReadText(ids=encoded.ids, segments=encoded.segments, spans=None, left_out=left_out)


def window_edges(continues: NDArray[np.bool_], longest: int) -> list[int]:
    """Return the start and end of windows of at most `longest` pieces; (pieces,) marks those inside
    words.

    All are of about one length; each begins with a word unless a word is too long.
    """
    edges = [0]
    while (rest := len(continues) - edges[-1]) > longest:
        begin = edges[-1]
        end = begin + -(-rest // -(-rest // longest))
        words = np.flatnonzero(~continues[begin + (end - begin) // 2 + 1 : end + 1])
        edges.append(begin + (end - begin) // 2 + 1 + int(words[-1]) if len(words) else end)
    return [*edges, len(continues)]


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
    forward: Forward = FORWARD,
) -> Iterator[TextFeatures]:
    """Return the features of a stream of examples, in their order and in constant memory.

    `after` are layers on top of pooled vectors, as some sentence-transformers folders have them.
    What a vector is does not depend on the other examples of its batch. Raises `ConfigError` for a
    layer or a pooler that the model has not, `ExampleError` for pairs where words are requested.
    """
    extraction = Features(model, tokenizer, config or FeatureConfig(), after)
    predictor = Predictor(model=model, answering=extraction, forward=forward)
    return predictor(examples, rows=extraction.rows(rows))


def width(model: Model, config: FeatureConfig, after: Sequence[nn.Module] = ()) -> int:
    """Return the length of the vectors; raises `ConfigError` as `features` does."""
    config, encoder = resolve_pooling(config, model), model.config.encoder
    mix = layer_mix(config.layer, encoder.layers)
    size = encoder.hidden * mix.parts * len(config.kinds)
    for layer in after:
        size = getattr(layer, "outputs", size)
    return size


class Features:
    """The answering by which a model gives vectors."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, config: FeatureConfig, after: Sequence[nn.Module]
    ) -> None:
        """`after` are layers on top of pooled vectors; raises `ConfigError` as `features` does."""
        config = resolve_pooling(config, model)
        self._tokenizer, self._config, self._after = tokenizer, config, after
        encoder = model.config.encoder
        self._mix: LayerMix = layer_mix(config.layer, encoder.layers)
        self._width = encoder.hidden * self._mix.parts
        self._longest = min(config.max_length or encoder.longest, encoder.longest)
        if config.pool == "pooler" and model.pooler is None:
            raise ConfigError(
                "the model has no pooler", remedy="choose another pooling, such as mean"
            )
        # a tokenizer that lower-cases by itself leaves the names of special tokens as they are
        self._lowered = config.lowercase and not tokenizer.lowercase
        if config.unit != "text" and (config.prompt or self._lowered):
            raise ConfigError(
                f"a {config.unit}'s place is that in the text as it is given",
                remedy="leave the prompt out, and lower-case the text yourself",
            )

    def rows(self, max_rows: int) -> int:
        """Return the number of texts to hold at once."""
        if self._config.unit == "text":
            return max_rows
        return max(1, min(max_rows, _HELD // (4 * self._width * self._longest)))

    def characters(self, example: Example) -> int:
        """Return the length of a text or pair."""
        return text_length(example)

    def encode(self, examples: Sequence[Example]) -> EncodedExamples:
        """Read texts as the config says; each sequence is a unit, the sidecar how it was read."""
        read = [
            read_text(
                self._tokenizer,
                self._prepare_text(example),
                longest=self._longest,
                long=self._config.truncation,
                spans=self._config.unit != "text",
            )
            for example in examples
        ]
        sequences = [list(zip(text.ids, text.segments, strict=True)) for text in read]
        return EncodedExamples.windows(sequences, read)

    def outputs(
        self, model: Model, requests: Sequence[Request[Example]], forward: Forward
    ) -> Sequence[Any]:
        """Return the vector of each text, or those of the tokens of each of its sequences."""
        with forward_only(model, forward.precision):
            result = self._sequence_vectors(model, join_requests(requests), forward)
            outputs = split_by_request(requests, result)
            if self._config.unit != "text":
                return outputs
            return list(self._text_vectors(requests, outputs, together=not forward.alone))

    def decode(self, request: Request[Example], output: Any) -> TextFeatures:  # noqa: ANN401
        """Return the features of a text."""
        (text,) = request.encoded.sidecar
        if self._config.unit == "text":
            return self._features(request.example, text, output)
        return self._row_features(request.example, text, output)

    def _prepare_text(self, example: Example) -> Example:
        """Return the example with the prompt, and lower-cased where requested."""
        config = self._config
        text, pair = config.prompt + example.text, example.text_pair
        if self._lowered:
            text, pair = self._lower(text), None if pair is None else self._lower(pair)
        return replace(example, text=text, text_pair=pair)

    def _lower(self, text: str) -> str:
        """Return a text in lower case, as by tokenizers, but for the tokens matched as given."""
        # few folders ask for it
        from tokenizers.normalizers import Lowercase

        parts = self._kept_names.split(text)
        parts[::2] = map(Lowercase().normalize_str, parts[::2])
        return "".join(parts)

    @cached_property
    def _kept_names(self) -> re.Pattern[str]:
        tokenizer, added = self._tokenizer, self._tokenizer.rules.added
        names = {tokenizer.vocabulary[number] for number in tokenizer.special_ids}
        if added is not None:
            names = {token.piece for token in added.tokens if not token.normalized}
        longest_first = sorted(names, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def _sequence_vectors(
        self, model: Model, encoded: EncodedExamples, forward: Forward
    ) -> list[NDArray[np.float32]]:
        """Return the vector (width,) of each sequence, or those (length, width) of its tokens."""
        results: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(encoded)
        by_text = self._config.unit == "text"
        computed = (
            (indices, batch, self._batch_vectors(model, batch))
            for indices, batch in forward.batches(model, encoded)
        )
        for indices, batch, outputs in fetched(computed):
            vectors = outputs.numpy()
            vectors_by_sequence = (
                list(vectors) if by_text else np.split(vectors, np.cumsum(batch.lengths)[:-1])
            )
            for index, vector in zip(indices.tolist(), vectors_by_sequence, strict=True):
                results[index] = vector
        return results

    def _batch_vectors(self, model: Model, batch: Batch) -> Tensor:
        """Return vectors (sequences, width), or (tokens, width) if each token or word has one."""
        if self._config.pool == "pooler":
            read = model.pooled_tokens(batch)
            return model.pooled(model.encoder(batch, selected=read), batch)
        taps, nowhere = Taps(states=frozenset(self._mix.layers)), batch.ids[:0]
        hidden = self._mix.mixed(model.encoder(batch, selected=nowhere, taps=taps).states)
        if self._config.unit != "text":
            return hidden
        return pooled(cast("tuple[VectorPooling, ...]", self._config.kinds), hidden, batch.offsets)

    def _text_vectors(
        self,
        requests: Sequence[Request[Example]],
        vectors_by_sequence: Sequence[Outputs],
        *,
        together: bool,
    ) -> NDArray[np.float32]:
        """Return the vectors (texts, width), windows averaged by their tokens."""
        averaged = [
            np.average(vectors, axis=0, weights=list(map(len, request.encoded.ids))).astype(
                np.float32
            )
            if len(vectors) > 1
            else vectors[0]
            for request, vectors in zip(requests, vectors_by_sequence, strict=True)
        ]
        stacked = torch.from_numpy(np.stack(averaged))
        for layer in self._after:
            # the last bits of a product depend on the number of its rows
            parts = [stacked] if together else stacked.split(1)
            stacked = torch.cat([layer(part) for part in parts])
        return finite(stacked).numpy()

    def _row_features(
        self, example: Example, text: ReadText, sequence_vectors: Sequence[NDArray[np.float32]]
    ) -> TextFeatures:
        """Return the features of a text's tokens or words."""
        assert text.spans is not None
        inner = np.concatenate([vectors[1:-1] for vectors in sequence_vectors])
        merging = MERGING.get(self._config.pool)
        if merging is not None:
            words = word_spans(example.text, self._config.words)
            vectors, spans = merged(inner, text.spans, words, merging)
            names = tuple(example.text[begin:end] for begin, end in spans.tolist())
        else:
            vectors = np.concatenate([sequence_vectors[0][:1], inner, sequence_vectors[-1][-1:]])
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
