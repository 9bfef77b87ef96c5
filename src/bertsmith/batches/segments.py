"""The text of training sequences: windows of a store in shuffled order, as one or two segments.

next_sentence      two segments, the second from another document in half of the sequences
                   (Devlin et al. 2018, section 3.1, task 2)
sentence_order     two consecutive segments, swapped in half of the sequences
                   (ALBERT: Lan et al. 2019, section 3.1)
within_documents   one segment of one document (RoBERTa's DOC-SENTENCES: Liu et al. 2019,
                   section 4.2)
across_documents   text that continues into the next document, [SEP] between documents
                   (RoBERTa's FULL-SENTENCES)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.config import Text
from bertsmith.core.streams import Purpose, bits, permuted, random_integers, stream, uniform
from bertsmith.store.store import TokenStore

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cuts:
    """Windows: token positions `starts` and `ends`, and the `documents` they begin in.

    `joints` counts the document boundaries inside each window.
    """

    starts: Numbers
    ends: Numbers
    documents: Numbers
    joints: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Numbers:
        """Number of tokens of each window, including separators between documents."""
        return self.ends - self.starts + self.joints

    def first(self, count: int) -> Cuts:
        """Return the first `count` windows."""
        return Cuts(
            *(part[:count] for part in (self.starts, self.ends, self.documents, self.joints))
        )


class Windows:
    """All windows of at most `budget` tokens of a store, numbered from 0 to `count` - 1."""

    def __init__(
        self,
        store: TokenStore,
        budget: int,
        continues: NDArray[np.bool_],
        seed: int,
        *,
        across: bool = False,
        fill: float = 15 / 16,
    ) -> None:
        """`continues` (vocabulary,) marks the pieces that continue a word.

        `across` lets windows cross documents. Windows fill a share `fill` of the budget on average;
        the rest lets a cut move to a better position.
        """
        assert budget >= 2
        self.store = store
        self.budget = budget
        self._continues = continues
        self._seed = seed
        self._across = across
        self._documents = store.document_starts()
        # the parts to cut: each document, or all of them, counted with the separators between them
        self._starts = self._documents
        if across:
            self._documents = np.unique(self._documents)
            self._separated = self._documents[:-1] + np.arange(len(self._documents) - 1)
            self._starts = np.array([0, store.tokens + len(self._documents) - 2])
        lengths = np.diff(self._starts)
        several = np.ceil(lengths / (budget * fill)).astype(np.int64) + 1
        self._first = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(np.where(lengths > budget, several, lengths > 0), out=self._first[1:])

    @property
    def count(self) -> int:
        """Number of windows, equal in every epoch."""
        return int(self._first[-1])

    def cut(self, numbers: Numbers, epoch: int) -> Cuts:
        """Return the positions of the given windows in an epoch."""
        part = np.searchsorted(self._first, numbers, side="right") - 1
        inside = numbers - self._first[part]
        starts = self._boundary(part, inside, epoch)
        ends = self._boundary(part, inside + 1, epoch)
        if not self._across:
            return Cuts(starts, ends, part, np.zeros_like(part))
        after = np.searchsorted(self._documents, starts, side="right")
        return Cuts(starts, ends, after - 1, np.searchsorted(self._documents, ends) - after)

    def ending(self, cuts: Cuts, ends: Numbers) -> Cuts:
        """Return the same windows with other ends, none of them empty."""
        if not self._across:
            return replace(cuts, ends=ends)
        joints = np.searchsorted(self._documents, ends) - cuts.documents - 1
        return replace(cuts, ends=ends, joints=joints)

    def document_end(self, document: int) -> int:
        """Return the end of a document, as a token position."""
        return int(self._documents[document + 1])

    def _boundary(self, part: Numbers, number: Numbers, epoch: int) -> Numbers:
        """Return the token position of the boundary before window `number` of each part."""
        start, end = self._starts[part], self._starts[part + 1]
        windows = self._first[part + 1] - self._first[part]
        spacing = (end - start) / np.maximum(windows - 1, 1)
        # never so small that a document's first or last window would be tiny
        shift = 0.25 + 0.5 * uniform(stream(Purpose.CUTS, self._seed, epoch), part)
        exact = start + np.floor((number - 1 + shift) * spacing).astype(np.int64)
        # a cut that moves across a document boundary moves a separator with it
        room = (self.budget - np.ceil(spacing).astype(np.int64)) // 2 - self._across
        slack = np.clip(room, 0, (spacing / 5).astype(np.int64))
        moved = self._to_sentence(self._in_store(np.clip(exact, start, end)), slack)
        start, end = self._in_store(start), self._in_store(end)
        inner = (number > 0) & (number < windows)
        return np.where(inner, np.maximum(moved, start + 1), np.where(number == 0, start, end))

    def _in_store(self, position: Numbers) -> Numbers:
        """Convert positions that count the separators between documents to token positions."""
        if not self._across:
            return position
        return position - (np.searchsorted(self._separated, position, side="right") - 1)

    def _to_sentence(self, exact: Numbers, slack: Numbers) -> Numbers:
        sentences = self.store.sentences
        after = np.searchsorted(sentences, exact)
        after = np.minimum(after, len(sentences) - 1)
        before = np.maximum(after - 1, 0)
        up, down = np.asarray(sentences[after]), np.asarray(sentences[before])
        nearest = np.where(up - exact <= exact - down, up, down)
        moved = np.where(np.abs(nearest - exact) <= slack, nearest, exact)
        for index in np.flatnonzero((moved == exact) & (up != exact)):
            moved[index] = self._to_word(int(exact[index]), int(slack[index]))
        return moved

    def _to_word(self, exact: int, slack: int) -> int:
        end = self.document_end(int(np.searchsorted(self._documents, exact, side="right")) - 1)
        ids = self.store.read(exact, min(exact + slack + 1, end))
        starts = np.flatnonzero(~self._continues[ids])
        return exact + int(starts[0]) if len(starts) else exact

    def by_document(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the part of each document in a range of tokens."""
        first = int(np.searchsorted(self._documents, start, side="right"))
        last = int(np.searchsorted(self._documents, end))
        edges = [start, *self._documents[first:last].tolist(), end]
        return list(pairwise(edges))


IS_NEXT, IS_RANDOM = 0, 1
IN_ORDER, EXCHANGED = 0, 1


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids of the parts between separators: two segments with a label, or one without."""

    parts: tuple[NDArray[np.integer], ...]
    label: int | None = None


class Segments:
    """The sequences of a store, a pure function of (seed, epoch, index).

    Next sentence: a window is split at the start of a sentence into A and B; for half of the
    windows B is replaced by text of the same length from another document, mostly by swapping
    with the neighbour in the epoch's order, so that little text is seen twice. It is shorter only
    where the other document ends earlier: lengths alone tell 50 % of the labels where documents
    are longer than windows, and 55 % where they have 2 to 7 sentences. A window without the start
    of a sentence inside stays one segment and has no label. Sentence order: the same, with B before
    A in half of the windows; as an incomplete sentence would distinguish A from B, only windows of
    whole sentences are split, and windows are shorter, so that most are. A share `short` of the
    windows ends earlier.
    """

    def __init__(
        self,
        store: TokenStore,
        text: Text,
        longest: int,
        continues: NDArray[np.bool_],
        seed: int,
        short: float = 0.0,
        *,
        specials: int,
    ) -> None:
        """Sequences have at most `longest` tokens, including `specials` special tokens."""
        self._store = store
        self._short = short
        self._text = text
        self._seed = seed
        self.specials = specials
        self._windows = Windows(
            store,
            longest - self.specials,
            continues,
            seed,
            across=text == "across_documents",
            fill=3 / 4 if text == "sentence_order" else 15 / 16,
        )

    @property
    def count(self) -> int:
        """Number of sequences per epoch."""
        return self._windows.count

    def cut(self, index: Numbers, epoch: int) -> Cuts:
        """Return the windows of the given sequences of an epoch."""
        numbers = permuted(index, self.count, stream(Purpose.SEQUENCE_ORDER, self._seed, epoch))
        cuts = self._windows.cut(numbers, epoch)
        if not self._short:
            return cuts
        key = stream(Purpose.SHORT_SEQUENCES, self._seed, epoch)
        ends = self._splits(cuts, uniform(key, 2 * index + 1))
        chosen = (uniform(key, 2 * index) < self._short) & (ends > 0)
        return self._windows.ending(cuts, np.where(chosen, ends, cuts.ends))

    def read(self, index: Numbers, epoch: int, cuts: Cuts) -> list[Sample]:
        """Return the given sequences of an epoch; `cuts` are their windows."""
        if self._text == "next_sentence":
            return self._next_sentence(index, epoch, cuts)
        if self._text == "sentence_order":
            return self._sentence_order(index, epoch, cuts)
        read = self._store.read
        ranges = zip(cuts.starts.tolist(), cuts.ends.tolist(), cuts.joints.tolist(), strict=True)
        return [
            Sample(tuple(read(*part) for part in self._windows.by_document(start, end)))
            if joints
            else Sample((read(start, end),))
            for start, end, joints in ranges
        ]

    def _next_sentence(self, index: Numbers, epoch: int, cuts: Cuts) -> list[Sample]:
        partner = np.where((index ^ 1) < self.count, index ^ 1, index)
        partner_cuts = self.cut(partner, epoch)
        key = stream(Purpose.PAIRS, self._seed, epoch)
        share = 0.1 + 0.8 * uniform(key, index // 2)
        random = bits(key, index // 2) & np.uint64(1) == 1
        own_split = self._splits(cuts, share)
        other_split = self._splits(partner_cuts, share)
        samples = []
        for i, split in enumerate(own_split.tolist()):
            start, end = int(cuts.starts[i]), int(cuts.ends[i])
            if split < 0:
                samples.append(Sample((self._store.read(start, end),)))
                continue
            first = self._store.read(start, split)
            if not random[i]:
                samples.append(Sample((first, self._store.read(split, end)), IS_NEXT))
                continue
            document = int(partner_cuts.documents[i])
            begin = int(other_split[i])
            if document == cuts.documents[i] or begin < 0:
                document, begin = self._random_sentence_elsewhere(
                    int(index[i]), int(cuts.documents[i]), epoch
                )
            stop = min(begin + end - split, self._windows.document_end(document))
            samples.append(Sample((first, self._store.read(begin, stop)), IS_RANDOM))
        return samples

    def _sentence_order(self, index: Numbers, epoch: int, cuts: Cuts) -> list[Sample]:
        key = stream(Purpose.PAIRS, self._seed, epoch)
        exchanged = bits(key, index) & np.uint64(1) == 1
        splits = self._splits(cuts, 0.1 + 0.8 * uniform(key, index))
        splits[~(self._begins_sentence(cuts.starts) & self._begins_sentence(cuts.ends))] = -1
        read, samples = self._store.read, []
        ranges = zip(cuts.starts.tolist(), splits.tolist(), cuts.ends.tolist(), strict=True)
        for i, (start, split, end) in enumerate(ranges):
            if split < 0:
                samples.append(Sample((read(start, end),)))
            elif exchanged[i]:
                samples.append(Sample((read(split, end), read(start, split)), EXCHANGED))
            else:
                samples.append(Sample((read(start, split), read(split, end)), IN_ORDER))
        return samples

    def _begins_sentence(self, positions: Numbers) -> NDArray[np.bool_]:
        """Return whether a sentence begins, or the text ends, at token positions."""
        sentences = self._store.sentences
        return np.asarray(sentences[np.searchsorted(sentences, positions)] == positions)

    def _splits(self, cuts: Cuts, share: NDArray[np.float64]) -> Numbers:
        """Return the sentence start inside each window nearest to a share of it, -1 if none."""
        sentences, starts, ends = self._store.sentences, cuts.starts, cuts.ends
        targets = starts + (ends - starts) * share
        after = np.minimum(np.searchsorted(sentences, targets), len(sentences) - 1)
        distance_after, distance_before = (
            np.asarray(sentences[after]),
            np.asarray(sentences[np.maximum(after - 1, 0)]),
        )
        up_inside, down_inside = (
            (starts < distance_after) & (distance_after < ends),
            (starts < distance_before) & (distance_before < ends),
        )
        nearer_up = up_inside & (
            ~down_inside | (distance_after - targets <= targets - distance_before)
        )
        return np.where(nearer_up, distance_after, np.where(down_inside, distance_before, -1))

    def _random_sentence_elsewhere(self, index: int, document: int, epoch: int) -> tuple[int, int]:
        """Return a random document other than the given one, and the start of a sentence in it."""
        key = stream(Purpose.RANDOM_DOCUMENT, self._seed, epoch, index)
        other = int(random_integers(self._store.index.documents - 1, key, 0))
        other += other >= document
        first, last = self._store.documents[other : other + 2].tolist()
        sentence = first + int(random_integers(last - first, key, 1))
        return other, int(self._store.sentences[sentence])
