"""The pieces that a vocabulary lacks most, for the words of some text.

A piece is worth what it saves: the pieces all words are cut into without it, less those they are
cut into with it, longest match first. A piece is taken even where it spoils what comes after it in
a word, and that counts against it. The best is added, the words that it changes are cut again, and
so on: greedily, but with the exact saving of every candidate at every step.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bertsmith.tokens.cutting import PieceTable
from bertsmith.tokens.observing import SILENT, LearningObserver
from bertsmith.tokens.stretches import frequent_lengths
from bertsmith.tokens.wordpiece import CONTINUES, LONGEST_WORD

# a candidate has to occur a fair share as often as the words that would save enough by themselves
_SHARE_OF_RIVAL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MinedPiece:
    """A piece that was added, and the pieces it saved in the text at that moment."""

    piece: str
    saved: int


class PieceMiner:
    """Finds the pieces to add to a vocabulary for words that occur so and so often."""

    def __init__(
        self,
        words: Mapping[str, int],
        vocabulary: Iterable[str],
        *,
        rarest: int,
        observer: LearningObserver = SILENT,
    ) -> None:
        """A piece is a candidate if it occurs `rarest` times in words of several pieces."""
        self._table = PieceTable(vocabulary)
        self._words = [
            word
            for word in words
            if len(word) <= LONGEST_WORD and self._table.end(word, 0) < len(word)
        ]
        self._counts = [words[word] for word in self._words]
        self._lengths, self._offsets = frequent_lengths(self._words, self._counts, rarest)
        self._saved: dict[str, int] = {}
        # every word after a line break, to be searched for pieces
        self._flat = "".join(f"\n{word}" for word in self._words)
        self._begins = [each + number for number, each in enumerate(self._offsets, start=1)]
        observer.phase("finding pieces", len(self._words), "words")
        for number in observer.each(range(len(self._words))):
            self._record(number, self._savings(number), {})
        self._heap = [(-saved, piece) for piece, saved in self._saved.items() if saved > 0]
        heapq.heapify(self._heap)

    def mine(self, count: int) -> Iterator[MinedPiece]:
        """Add up to `count` pieces, best first; fewer when none would save anything."""
        done = 0
        while done < count and self._heap:
            claimed, piece = heapq.heappop(self._heap)
            saved = self._saved.get(piece, 0)
            if saved != -claimed:
                # it has lost since; where it gained, it stands in the heap once more
                if 0 < saved < -claimed:
                    heapq.heappush(self._heap, (-saved, piece))
                continue
            self._add(piece)
            done += 1
            yield MinedPiece(piece=piece, saved=saved)

    def _add(self, piece: str) -> None:
        before = [(number, self._savings(number)) for number in self._cut_by(piece)]
        self._table.add(piece)
        changed: set[str] = set()
        for number, old in before:
            changed |= self._record(number, self._savings(number), old)
        del self._saved[piece]
        for each in sorted(changed - {piece}):
            if (saved := self._saved[each]) > 0:
                heapq.heappush(self._heap, (-saved, each))

    def _cut_by(self, piece: str) -> Iterator[int]:
        """The words in which a new piece would be the longest from some place on.

        It need not change them by itself to change what some other piece would save.
        """
        bare, goes_on = piece.removeprefix(CONTINUES), piece.startswith(CONTINUES)
        sought, last = bare if goes_on else f"\n{bare}", -1
        place = self._flat.find(sought)
        while place >= 0:
            at = place if goes_on else place + 1
            number = bisect_right(self._begins, at) - 1
            start = at - self._begins[number]
            stop = start + len(bare)
            fits = number > last and (start > 0) == goes_on
            if fits and self._table.end(self._words[number], start) < stop:
                last = number
                yield number
            place = self._flat.find(sought, place + 1)

    def _savings(self, number: int) -> dict[str, int]:
        word, start = self._words[number], self._offsets[number]
        return self._table.savings(word, self._lengths[start : start + len(word)])

    def _record(self, number: int, new: Mapping[str, int], old: Mapping[str, int]) -> set[str]:
        """Exchange what a word says of its candidates; those that gained by it."""
        count, saved, gained = self._counts[number], self._saved, set()
        for piece, each in old.items():
            saved[piece] -= count * each
        for piece, each in new.items():
            saved[piece] = saved.get(piece, 0) + count * each
            if each > old.get(piece, 0):
                gained.add(piece)
        return gained | {piece for piece, each in old.items() if each < new.get(piece, 0)}


def rarest_worth_adding(
    words: Mapping[str, int], vocabulary: Iterable[str], *, count: int, rarest: int
) -> int:
    """How often a piece must occur to be among the best `count`, at least `rarest`.

    Whole words save a known number of pieces; what occurs but an eighth as often as the last of the
    best `count` of them saves will not be among the best. Bounds the work on large corpora.
    """
    table = PieceTable(vocabulary)
    savings = np.array([number * (table.cost(word) - 1) for word, number in words.items()])
    if len(savings) <= count:
        return rarest
    last = int(np.partition(savings, -count)[-count])
    return max(rarest, last // _SHARE_OF_RIVAL)
