"""Cutting documents into windows of text, differently in each epoch, without a table of them.

A document of n tokens that does not fit one window is cut at equal distances, shifted by a random
part of that distance drawn from (seed, epoch, document); each cut then moves to the nearest
beginning of a sentence, or else of a word, as far as every window still fits. So in each epoch
every token stands in exactly one window, no window crosses a document, and window number i is
found by two binary searches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.randomness import stream, uniform
from bertsmith.batches.store import TokenStore

Numbers = NDArray[np.int64]

# windows are cut this much shorter than they may be, so that a cut can move to a better place
_FILL = 15 / 16


@dataclass(frozen=True, slots=True)
class Cuts:
    """Windows by number: token positions `starts` and `ends`, and the `documents` they lie in."""

    starts: Numbers
    ends: Numbers
    documents: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    def first(self, count: int) -> Cuts:
        """The first `count` of them."""
        return Cuts(self.starts[:count], self.ends[:count], self.documents[:count])


class Windows:
    """All windows of at most `budget` tokens of a store, numbered from 0 to `count` - 1."""

    def __init__(
        self, store: TokenStore, budget: int, continues: NDArray[np.bool_], seed: int
    ) -> None:
        """`continues` (vocabulary,) tells the pieces that continue a word."""
        assert budget >= 2
        self.store = store
        self.budget = budget
        self._continues = continues
        self._seed = seed
        self._starts = store.document_starts()
        lengths = np.diff(self._starts)
        several = np.ceil(lengths / (budget * _FILL)).astype(np.int64) + 1
        self._first = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(np.where(lengths > budget, several, lengths > 0), out=self._first[1:])

    @property
    def count(self) -> int:
        """Number of windows, the same in every epoch."""
        return int(self._first[-1])

    def cut(self, numbers: Numbers, epoch: int) -> Cuts:
        """Where the windows with these numbers lie in an epoch."""
        document = np.searchsorted(self._first, numbers, side="right") - 1
        inside = numbers - self._first[document]
        return Cuts(
            starts=self._boundary(document, inside, epoch),
            ends=self._boundary(document, inside + 1, epoch),
            documents=document,
        )

    def document_end(self, document: int) -> int:
        """Where a document ends, in tokens."""
        return int(self._starts[document + 1])

    def _boundary(self, document: Numbers, number: Numbers, epoch: int) -> Numbers:
        """The token position of the boundary before window `number` of each document."""
        start, end = self._starts[document], self._starts[document + 1]
        windows = self._first[document + 1] - self._first[document]
        spacing = (end - start) / np.maximum(windows - 1, 1)
        # never so little that a document's first or last window would be a sliver
        shift = 0.25 + 0.5 * uniform(stream(self._seed, epoch), document)
        exact = start + np.floor((number - 1 + shift) * spacing).astype(np.int64)
        room = (self.budget - np.ceil(spacing).astype(np.int64)) // 2
        slack = np.clip(room, 0, (spacing / 5).astype(np.int64))
        moved = self._to_sentence(np.clip(exact, start, end), slack)
        inner = (number > 0) & (number < windows)
        return np.where(inner, moved, np.where(number == 0, start, end))

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
        shard_end = self.document_end(int(np.searchsorted(self._starts, exact, side="right")) - 1)
        ids = self.store.read(exact, min(exact + slack + 1, shard_end))
        starts = np.flatnonzero(~self._continues[ids])
        return exact + int(starts[0]) if len(starts) else exact
