"""Batches of labelled or unlabelled examples, for fine-tuning, evaluation and inference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batches.batch import Batch, Target, pack
from bertsmith.batches.pairs import Ids, Segments, encode_pair
from bertsmith.batches.pretraining import Place
from bertsmith.batches.randomness import permuted, stream
from bertsmith.tokens.tokenizer import Tokenizer

# MiniLM on one CPU thread: 512 to 4,096 tokens do alike, 16,384 are 18 % slower
TOKENS_PER_BATCH = 2048
# purpose of the random stream, unlike those of pre-training
_ORDER = 101


@dataclass(frozen=True, kw_only=True)
class EncodedExamples:
    """Examples as token ids: `ids` and `segments`, each (length,) an example.

    `labels` (examples,) are class numbers; `cut` (examples,) tells which lost tokens for length.
    """

    ids: list[Ids]
    segments: list[Segments]
    labels: NDArray[np.int64] | None
    cut: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each example, (examples,)."""
        return np.array([len(ids) for ids in self.ids], np.int64)


def encode_examples(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str | None] | None = None,
    labels: NDArray[np.int64] | None = None,
    *,
    longest: int,
) -> EncodedExamples:
    """Encode texts, or pairs of texts where `pairs` has a second one, in at most `longest` tokens.

    As in `transformers`, a literal "[SEP]" in a text is the special token.
    """
    seconds = [None] * len(texts) if pairs is None else pairs
    assert len(seconds) == len(texts)
    assert labels is None or len(labels) == len(texts)
    ids, segments, cut = [], [], np.zeros(len(texts), bool)
    for number, (text, pair) in enumerate(zip(texts, seconds, strict=True)):
        first, *rest = tokenizer.encode([text] if pair is None else [text, pair])
        second = rest[0] if rest else None
        sequence, segment = encode_pair(
            first, second, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id, longest=longest
        )
        whole = len(first) + 2 if second is None else len(first) + len(second) + 3
        cut[number] = len(sequence) < whole
        ids.append(sequence)
        segments.append(segment)
    return EncodedExamples(ids=ids, segments=segments, labels=labels, cut=cut)


def pack_examples(examples: EncodedExamples, indices: NDArray[np.int64]) -> Batch:
    """The examples with these indices as one batch, with the target "classify" if labelled."""
    ids = [examples.ids[index] for index in indices]
    segments = [examples.segments[index] for index in indices]
    if examples.labels is None:
        return pack(ids, segments)
    labels = torch.from_numpy(examples.labels[indices])
    target = Target(at=torch.arange(len(labels)), labels=labels)
    return pack(ids, segments, {"classify": target})


class ExampleBatches:
    """Batches of a fixed number of sequences, in an order that depends on (seed, epoch) only.

    Every example is seen once an epoch; an epoch's last batch may be smaller.
    """

    def __init__(self, examples: EncodedExamples, *, sequences_per_batch: int, seed: int) -> None:
        assert len(examples)
        assert sequences_per_batch > 0
        self._examples = examples
        self._sequences = sequences_per_batch
        self._seed = seed

    @property
    def batches(self) -> int:
        """Batches an epoch."""
        return -(-len(self._examples) // self._sequences)

    def indices(self, place: Place) -> NDArray[np.int64]:
        """The examples of the batch that begins at a place."""
        size = len(self._examples)
        positions = np.arange(place.index, min(place.index + self._sequences, size))
        return permuted(positions, size, stream(self._seed, place.epoch, _ORDER))

    def take(self, place: Place) -> tuple[Batch, Place]:
        """The batch that begins at a place, and the place after it."""
        indices = self.indices(place)
        after = place.index + len(indices)
        ended = after >= len(self._examples)
        return pack_examples(self._examples, indices), (
            Place(epoch=place.epoch + 1) if ended else Place(epoch=place.epoch, index=after)
        )


def evaluation_batches(
    examples: EncodedExamples, *, tokens_per_batch: int = TOKENS_PER_BATCH
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """All examples in batches of a token budget, with their indices, the longest first.

    Neighbours are of about one length, and a lack of memory shows at once. An example longer than
    the budget makes a batch of its own.
    """
    lengths = examples.lengths
    order = np.argsort(-lengths, kind="stable")
    start = total = 0
    for place, index in enumerate(order):
        if total + lengths[index] > tokens_per_batch and place > start:
            yield order[start:place], pack_examples(examples, order[start:place])
            start, total = place, 0
        total += int(lengths[index])
    if start < len(order):
        yield order[start:], pack_examples(examples, order[start:])
