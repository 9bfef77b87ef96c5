"""Batches of labelled or unlabelled examples, for fine-tuning, evaluation and inference.

A unit is never split over batches: a text (with all its windows), the options of a question, or
one window of a text with labels for its words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batches import DataPosition
from bertsmith.batches.truncation import Ids, Segments, fitted
from bertsmith.core.printable import counted
from bertsmith.core.streams import Purpose, permuted, stream
from bertsmith.network.batch import Batch, Target, offsets_of, pack
from bertsmith.network.config import Fit
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

# MiniLM on one CPU thread: 512 to 4,096 tokens are equally fast, 16,384 are 18 % slower
TOKENS_PER_BATCH = 2048
Labels = NDArray[Any] | Sequence[NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class EncodedExamples:
    """Examples as token ids: `ids` and `segments`, each (length,) per sequence.

    Unit i consists of the sequences `starts[i]` to `starts[i + 1]`; `cut` (units,) marks the units
    that were truncated, `long` (units,) those over the length limit. `labels` has one entry per
    unit: a class number, an array of numbers or, with `positions`, an array of labels, one for each
    of the `positions`, of tokens in the unit's only sequence. `target` names the objective that
    reads them.

    A row (an example of a file) is one unit, unless it is read in windows that are units each: then
    `owners` (units,) are the rows of the units, ascending. `sidecar` (rows,) is what decoding the
    outputs for a row needs, such as the positions of its tokens in the text.
    """

    ids: list[Ids]
    segments: list[Segments]
    starts: NDArray[np.int64]
    cut: NDArray[np.bool_]
    long: NDArray[np.bool_]
    target: str = "classify"
    labels: Labels | None = None
    positions: Sequence[NDArray[np.int64]] | None = None
    owners: NDArray[np.int64] | None = None
    sidecar: Sequence[Any] = ()

    def __repr__(self) -> str:
        units, sequences = counted(len(self), "unit"), counted(len(self.ids), "sequence")
        return f"<EncodedExamples: {units}, {sequences}, {sum(map(len, self.ids)):,} tokens>"

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of(cls, ids: list[Ids], segments: list[Segments] | None = None) -> EncodedExamples:
        """Return sequences as units of one sequence, none of them truncated.

        Without `segments`, each is a single text: all its tokens are of segment 0.
        """
        if segments is None:
            segments = [np.zeros(len(sequence), np.int8) for sequence in ids]
        not_cut = np.zeros(len(ids), bool)
        return EncodedExamples(
            ids=ids, segments=segments, starts=np.arange(len(ids) + 1), cut=not_cut, long=not_cut
        )

    @classmethod
    def windows(
        cls,
        rows: Sequence[Sequence[tuple[Ids, Segments]]],
        sidecar: Sequence[Any],
        *,
        cut: Sequence[bool] | None = None,
        positions: Sequence[NDArray[np.int64]] | None = None,
    ) -> EncodedExamples:
        """Return rows of ids and segments, each window a unit; `cut` (rows,) marks rows."""
        counts = [len(windows) for windows in rows]
        return cls(
            ids=[ids for windows in rows for ids, _ in windows],
            segments=[segments for windows in rows for _, segments in windows],
            starts=np.arange(sum(counts) + 1),
            cut=np.repeat(np.zeros(len(rows), bool) if cut is None else np.array(cut), counts),
            long=np.repeat(np.array(counts) > 1, counts),
            positions=positions,
            owners=np.repeat(np.arange(len(rows)), counts),
            sidecar=sidecar,
        )

    @classmethod
    def joined(cls, parts: Sequence[EncodedExamples]) -> EncodedExamples:
        """Return the units of several, one after another, without labels and sidecars."""
        without_positions = parts[0].positions is None
        return EncodedExamples(
            ids=[ids for part in parts for ids in part.ids],
            segments=[segments for part in parts for segments in part.segments],
            starts=offsets_of(np.concatenate([np.diff(part.starts) for part in parts])),
            cut=np.concatenate([part.cut for part in parts]),
            long=np.concatenate([part.long for part in parts]),
            positions=None
            if without_positions
            else [at for part in parts for at in part.positions or ()],
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each unit, (units,)."""
        return np.diff(offsets_of([len(ids) for ids in self.ids])[self.starts])

    @property
    def texts(self) -> int:
        """Number of rows."""
        if self.owners is None:
            return len(self)
        return int(self.owners[-1]) + 1 if len(self.owners) else 0

    @property
    def long_texts(self) -> int:
        """Number of rows over the length limit."""
        return self._rows_with(self.long)

    @property
    def cut_texts(self) -> int:
        """Number of truncated rows."""
        return self._rows_with(self.cut)

    def _rows_with(self, units: NDArray[np.bool_]) -> int:
        return int(units.sum() if self.owners is None else len(np.unique(self.owners[units])))

    def by_row(self) -> Iterator[EncodedExamples]:
        """Yield the units of each row, without labels."""
        ends: Sequence[int] = range(1, len(self) + 1)
        if self.owners is not None:
            ends = np.searchsorted(self.owners, np.arange(self.texts), side="right").tolist()
        starts: list[int] = self.starts.tolist()
        first = 0
        for row, end in enumerate(ends):
            begin, after = starts[first], starts[end]
            yield EncodedExamples(
                ids=self.ids[begin:after],
                segments=self.segments[begin:after],
                starts=self.starts[first : end + 1] - begin,
                cut=self.cut[first:end],
                long=self.long[first:end],
                positions=None if self.positions is None else self.positions[first:end],
                owners=None if self.owners is None else self.owners[first:end] - row,
                sidecar=self.sidecar[row : row + 1],
            )
            first = end

    def labelled(self, target: str, labels: Labels) -> EncodedExamples:
        """Return the examples with labels (units, ...) for the objective `target`."""
        assert len(labels) == len(self)
        return replace(self, target=target, labels=labels)

    def grouped(self, sizes: Sequence[int]) -> EncodedExamples:
        """Return the same sequences with runs of `sizes` units merged into one, without labels."""
        firsts = offsets_of(sizes)
        assert firsts[-1] == len(self)
        return EncodedExamples(
            ids=self.ids,
            segments=self.segments,
            starts=self.starts[firsts],
            cut=np.logical_or.reduceat(self.cut, firsts[:-1]),
            long=np.logical_or.reduceat(self.long, firsts[:-1]),
        )

    def sequences(self, units: NDArray[np.int64]) -> list[int]:
        """Return the indices of the sequences of the given units, unit by unit."""
        ranges = zip(self.starts[units].tolist(), self.starts[units + 1].tolist(), strict=True)
        return [number for first, after in ranges for number in range(first, after)]


def encode_examples(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str | None] | None = None,
    *,
    longest: int,
    fit: Fit = "head",
    contexts: Sequence[str | None] | None = None,
) -> EncodedExamples:
    """Encode texts, or pairs of texts if `pairs` has a second one, in at most `longest` tokens.

    `fit` decides how longer ones are treated. Where `contexts` has the beginning of a text, that is
    truncated, and not the question that follows it. As in `transformers`, a literal "[SEP]" in a
    text is the special token.
    """
    seconds = [None] * len(texts) if pairs is None else pairs
    before = [None] * len(texts) if contexts is None else contexts
    assert len(seconds) == len(before) == len(texts)
    specials = tokenizer.specials_around(pair=pairs is not None)
    ids, segments, sizes = [], [], []
    cut, long = np.zeros(len(texts), bool), np.zeros(len(texts), bool)
    for number, (text, pair) in enumerate(zip(texts, seconds, strict=True)):
        first, *rest = tokenizer.encode([text] if pair is None else [text, pair])
        second, question = rest[0] if rest else None, 0
        context, size = before[number], specials + len(first) + sum(map(len, rest))
        # where all of it fits, the context need not be encoded by itself
        if context is not None and size > longest:
            question = max(0, len(first) - len(tokenizer.encode([context])[0]))
        fitted_text = fitted(tokenizer, first, second, longest=longest, fit=fit, question=question)
        ids += [sequence for sequence, _ in fitted_text.sequences]
        segments += [segment for _, segment in fitted_text.sequences]
        sizes.append(len(fitted_text.sequences))
        cut[number], long[number] = fitted_text.cut, fitted_text.long
    return EncodedExamples(ids=ids, segments=segments, starts=offsets_of(sizes), cut=cut, long=long)


def encode_rows(
    tokenizer: Tokenizer, rows: Sequence[Example], *, longest: int, fit: Fit = "head"
) -> EncodedExamples:
    """Encode the text or the pair of texts of each row, as `encode_examples` does."""
    texts, pairs = [row.text for row in rows], [row.text_pair for row in rows]
    return encode_examples(tokenizer, texts, pairs, longest=longest, fit=fit)


def pack_examples(examples: EncodedExamples, units: NDArray[np.int64]) -> Batch:
    """Pack the given units into one batch, with their target if they are labelled.

    The target is at the first sequence of each unit, or at the tokens given by `positions`.
    """
    sequences = examples.sequences(units)
    ids = [examples.ids[number] for number in sequences]
    segments = [examples.segments[number] for number in sequences]
    return pack(ids, segments, _targets(examples, units, ids))


def _targets(
    examples: EncodedExamples, units: NDArray[np.int64], ids: Sequence[Ids]
) -> Mapping[str, Target]:
    if examples.labels is None:
        return {}
    all_labels = examples.labels
    labels = (
        all_labels[units]
        if isinstance(all_labels, np.ndarray)
        else [all_labels[unit] for unit in units]
    )
    if examples.positions is None:
        positions = offsets_of(np.diff(examples.starts)[units])[:-1]
    else:
        begins = offsets_of([len(sequence) for sequence in ids])[:-1]
        places = zip(begins.tolist(), units.tolist(), strict=True)
        positions = np.concatenate([begin + examples.positions[unit] for begin, unit in places])
        labels = np.concatenate(list(labels))
    assert isinstance(labels, np.ndarray)
    target = Target(
        positions=torch.from_numpy(positions),
        labels=torch.from_numpy(labels),
        by_sequence=examples.positions is None,
    )
    return {examples.target: target}


class ExampleBatches:
    """Batches of a fixed number of units, in an order that depends only on (seed, epoch).

    Every unit occurs once per epoch; an epoch's last batch may be smaller.
    """

    def __init__(self, examples: EncodedExamples, *, units_per_batch: int, seed: int) -> None:
        assert len(examples)
        assert units_per_batch > 0
        self._examples = examples
        self._units = units_per_batch
        self._seed = seed

    def units(self, position: DataPosition) -> NDArray[np.int64]:
        """Return the units of the batch at a position in the data."""
        size = len(self._examples)
        positions = np.arange(position.index, min(position.index + self._units, size))
        key = stream(Purpose.EXAMPLE_ORDER, self._seed, position.epoch)
        return permuted(positions, size, key)

    def next_batch(self, position: DataPosition) -> tuple[Batch, DataPosition]:
        """Return the batch at a position in the data, and the position after it."""
        units = self.units(position)
        after = position.index + len(units)
        ended = after >= len(self._examples)
        return pack_examples(self._examples, units), (
            DataPosition(epoch=position.epoch + 1)
            if ended
            else DataPosition(epoch=position.epoch, index=after)
        )


def evaluation_batches(
    examples: EncodedExamples, *, tokens_per_batch: int = TOKENS_PER_BATCH
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """Yield all units in batches of a token budget, with their indices, the longest first.

    The units of a batch have similar lengths, and running out of memory shows at once. A unit
    longer than the budget is a batch alone.
    """
    lengths = examples.lengths
    order = np.argsort(-lengths, kind="stable")
    start = total = 0
    for index, unit in enumerate(order):
        if total + lengths[unit] > tokens_per_batch and index > start:
            yield order[start:index], pack_examples(examples, order[start:index])
            start, total = index, 0
        total += int(lengths[unit])
    if start < len(order):
        yield order[start:], pack_examples(examples, order[start:])
