"""Cutting text into windows, differently in each epoch, without a table of them.

A document of n tokens that does not fit one window is cut at equal distances, shifted by a random
part of that distance drawn from (seed, epoch, document); each cut then moves to the nearest
beginning of a sentence, or else of a word, as far as every window still fits. So in each epoch
every token stands in exactly one window, no window crosses a document, and window number i is
found by two binary searches. Windows that may cross documents are cut in the same way, from all
documents in their order as if they were one, with room for a separator between any two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.randomness import Purpose, stream, uniform
from bertsmith.batches.store import TokenStore

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cuts:
    """Windows by number: token positions `starts` and `ends`, the `documents` they begin in.

    `joints` counts the places in a window where one document ends and the next begins.
    """

    starts: Numbers
    ends: Numbers
    documents: Numbers
    joints: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Numbers:
        """Tokens of each, separators between documents included."""
        return self.ends - self.starts + self.joints

    def first(self, count: int) -> Cuts:
        """The first `count` of them."""
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
        """`continues` (vocabulary,) tells the pieces that continue a word.

        `across` lets windows cross documents; what windows lack of the budget on average, 1 -
        `fill` of it, lets a cut move to a better place.
        """
        assert budget >= 2
        self.store = store
        self.budget = budget
        self._continues = continues
        self._seed = seed
        self._across = across
        self._documents = store.document_starts()
        # what is cut: each document, or all of them; counted with the separators between them
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
        """Number of windows, the same in every epoch."""
        return int(self._first[-1])

    def cut(self, numbers: Numbers, epoch: int) -> Cuts:
        """Where the windows with these numbers lie in an epoch."""
        part = np.searchsorted(self._first, numbers, side="right") - 1
        inside = numbers - self._first[part]
        starts = self._boundary(part, inside, epoch)
        ends = self._boundary(part, inside + 1, epoch)
        if not self._across:
            return Cuts(starts, ends, part, np.zeros_like(part))
        after = np.searchsorted(self._documents, starts, side="right")
        return Cuts(starts, ends, after - 1, np.searchsorted(self._documents, ends) - after)

    def ending(self, cuts: Cuts, ends: Numbers) -> Cuts:
        """The same windows with other ends, none of them empty."""
        if not self._across:
            return replace(cuts, ends=ends)
        joints = np.searchsorted(self._documents, ends) - cuts.documents - 1
        return replace(cuts, ends=ends, joints=joints)

    def document_end(self, document: int) -> int:
        """Where a document ends, in tokens."""
        return int(self._documents[document + 1])

    def _boundary(self, part: Numbers, number: Numbers, epoch: int) -> Numbers:
        """The token position of the boundary before window `number` of each part."""
        start, end = self._starts[part], self._starts[part + 1]
        windows = self._first[part + 1] - self._first[part]
        spacing = (end - start) / np.maximum(windows - 1, 1)
        # never so little that a document's first or last window would be a sliver
        shift = 0.25 + 0.5 * uniform(stream(Purpose.CUTS, self._seed, epoch), part)
        exact = start + np.floor((number - 1 + shift) * spacing).astype(np.int64)
        # a cut that moves across the end of a document takes a separator along
        room = (self.budget - np.ceil(spacing).astype(np.int64)) // 2 - self._across
        slack = np.clip(room, 0, (spacing / 5).astype(np.int64))
        moved = self._to_sentence(self._in_store(np.clip(exact, start, end)), slack)
        start, end = self._in_store(start), self._in_store(end)
        inner = (number > 0) & (number < windows)
        return np.where(inner, np.maximum(moved, start + 1), np.where(number == 0, start, end))

    def _in_store(self, position: Numbers) -> Numbers:
        """Token positions of positions that count the separators between documents too."""
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
        """The part of each document in a range of tokens."""
        first = int(np.searchsorted(self._documents, start, side="right"))
        last = int(np.searchsorted(self._documents, end))
        edges = [start, *self._documents[first:last].tolist(), end]
        return list(pairwise(edges))
