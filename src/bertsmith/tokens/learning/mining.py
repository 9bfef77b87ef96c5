"""Mining of the pieces that save most in a vocabulary, for the words of some text.

The saving of a piece is the number of pieces all words are split into without it, minus the number
with it, longest match first. A piece matches even where it leads to more pieces after it in a word,
which reduces its saving. The best piece is added, the words that it changes are split again, and so
on: greedily, but with the exact saving of every candidate at every step.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.streams import bits
from bertsmith.tokens.learning.counting import SILENT, LearningObserver
from bertsmith.tokens.wordpiece import CONTINUES, MAX_WORD_LENGTH


class PieceTable:
    """The pieces of a growing vocabulary, which split words by longest match first."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._first: set[str] = set()
        self._later: set[str] = set()
        self._longest = 0
        for piece in pieces:
            self.add(piece)

    def add(self, piece: str) -> None:
        """Add a piece; one that continues a word begins with ##."""
        bare = piece.removeprefix(CONTINUES)
        (self._later if piece.startswith(CONTINUES) else self._first).add(bare)
        self._longest = max(self._longest, len(bare))

    def remove(self, piece: str) -> None:
        """Remove an existing piece."""
        continues_word = piece.startswith(CONTINUES)
        (self._later if continues_word else self._first).remove(piece.removeprefix(CONTINUES))

    def end(self, word: str, start: int) -> int:
        """Return the end of the longest piece at `start`, or `start` if there is none."""
        pieces = self._later if start else self._first
        end = min(len(word), start + self._longest)
        while end > start and word[start:end] not in pieces:
            end -= 1
        return end

    def cut(self, word: str, start: int = 0) -> list[str] | None:
        """Return the pieces of a word from `start` on; None if no pieces match, for [UNK]."""
        pieces: list[str] = []
        while start < len(word):
            end = self.end(word, start)
            if end == start:
                return None
            pieces.append(CONTINUES + word[start:end] if start else word[:end])
            start = end
        return pieces

    def cost(self, word: str) -> int:
        """Return the number of pieces of a word, or of its characters if no pieces match."""
        pieces = self.cut(word)
        return len(word) if pieces is None else len(pieces)

    def savings(self, word: str, lengths: Sequence[int]) -> dict[str, int]:
        """Return the candidate pieces that would change a word's split, with their savings.

        `lengths` (characters,) are the lengths of the longest candidates at each position. Savings
        may be 0 or less. A word of one piece has no candidates.
        """
        path = _Path(self, word)
        whole = path.starts(0)
        cost = len(word) if whole is None else len(whole)
        savings: dict[str, int] = {}
        before = start = 0
        while start < len(word):
            end = path.end(start)
            for stop in range(end + 1, min(len(word), start + lengths[start]) + 1):
                bare = word[start:stop]
                piece = CONTINUES + bare if start else bare
                if piece not in savings:
                    savings[piece] = cost - path.cost_after(before + 1, stop, bare if start else "")
            if end == start:
                break
            before, start = before + 1, end
        return savings


class _Path:
    """The split of one word from any position on, computed once for each position."""

    def __init__(self, table: PieceTable, word: str) -> None:
        self._table = table
        self._word = word
        self._ends: dict[int, int] = {}

    def end(self, start: int) -> int:
        end = self._ends.get(start)
        if end is None:
            end = self._ends[start] = self._table.end(self._word, start)
        return end

    def starts(self, start: int, more: str = "") -> list[int] | None:
        """Return the piece starts from `start` on, with one more ## piece; None if none match."""
        starts: list[int] = []
        while start < len(self._word):
            starts.append(start)
            end = self.end(start)
            if more and end < start + len(more) and self._word.startswith(more, start):
                end = start + len(more)
            if end == start:
                return None
            start = end
        return starts

    def cost_after(self, before: int, stop: int, more: str) -> int:
        """Return the number of pieces of the word if `before` of them end at `stop`."""
        rest = self.starts(stop, more)
        return len(self._word) if rest is None else before + len(rest)


def frequent_lengths(
    words: Sequence[str], counts: Sequence[int], rarest: int
) -> tuple[bytes, list[int]]:
    """Return the length of the longest substring that occurs `rarest` times, for every position.

    The positions of all words are concatenated; the second value are the starts of the words.
    Substrings at the beginning of a word are counted separately from others.
    """
    sizes = np.fromiter(map(len, words), np.int64, len(words))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    codes = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
    position = np.arange(len(codes))
    remaining = np.repeat(offsets[1:], sizes) - position
    weights = np.repeat(np.asarray(counts, np.int64), sizes)
    hashes = np.zeros(len(codes), np.uint64)
    hashes[offsets[:-1]] = 1 << 32  # beyond any code point
    lengths = np.zeros(len(codes), np.uint8)
    length = 0
    while len(position):
        hashes = bits(hashes + codes[position + length], 0)
        length += 1
        frequent = _totals(hashes, weights[position]) >= rarest
        lengths[position[frequent]] = length
        going_on = frequent & (remaining[position] > length)
        position, hashes = position[going_on], hashes[going_on]
    return lengths.tobytes(), offsets[:-1].tolist()


def _totals(hashes: NDArray[np.uint64], weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each entry the total weight of all entries with its hash."""
    _, inverse = np.unique(hashes, return_inverse=True)
    totals = np.zeros(len(hashes), np.int64)
    np.add.at(totals, inverse, weights)
    return totals[inverse]


# a candidate must occur at least this fraction as often as the words that save enough as a whole
_SHARE_OF_RIVAL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MinedPiece:
    """A piece that was added, and the number of pieces it saved in the text at that moment."""

    piece: str
    saved: int


class PieceMiner:
    """Finds the pieces to add to a vocabulary for words with counts."""

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
            if len(word) <= MAX_WORD_LENGTH and self._table.end(word, 0) < len(word)
        ]
        self._counts = [words[word] for word in self._words]
        self._lengths, self._offsets = frequent_lengths(self._words, self._counts, rarest)
        self._saved: dict[str, int] = {}
        # all words, each after a line break, to search for pieces
        self._flat = "".join(f"\n{word}" for word in self._words)
        self._begins = [offset + number for number, offset in enumerate(self._offsets, start=1)]
        observer.phase("finding pieces", len(self._words), "words")
        for number in observer.each(range(len(self._words))):
            self._record(number, self._savings(number), {})
        self._heap = [(-saved, piece) for piece, saved in self._saved.items() if saved > 0]
        heapq.heapify(self._heap)

    def mine(self, count: int) -> Iterator[MinedPiece]:
        """Add up to `count` pieces, best first; fewer if no others would save anything."""
        done = 0
        while done < count and self._heap:
            claimed, piece = heapq.heappop(self._heap)
            saved = self._saved.get(piece, 0)
            if saved != -claimed:
                # outdated: it has lost since, or has gained and is in the heap once more
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
        for other in sorted(changed - {piece}):
            if (saved := self._saved[other]) > 0:
                heapq.heappush(self._heap, (-saved, other))

    def _cut_by(self, piece: str) -> Iterator[int]:
        """Yield the words in which a new piece would be the longest match at some position.

        Even if it does not change a word, it may change what another piece would save.
        """
        bare, continues_word = piece.removeprefix(CONTINUES), piece.startswith(CONTINUES)
        piece_text, last = bare if continues_word else f"\n{bare}", -1
        position = self._flat.find(piece_text)
        while position >= 0:
            at = position if continues_word else position + 1
            number = bisect_right(self._begins, at) - 1
            start = at - self._begins[number]
            stop = start + len(bare)
            fits = number > last and (start > 0) == continues_word
            if fits and self._table.end(self._words[number], start) < stop:
                last = number
                yield number
            position = self._flat.find(piece_text, position + 1)

    def _savings(self, number: int) -> dict[str, int]:
        word, start = self._words[number], self._offsets[number]
        return self._table.savings(word, self._lengths[start : start + len(word)])

    def _record(self, number: int, new: Mapping[str, int], old: Mapping[str, int]) -> set[str]:
        """Replace a word's savings of its candidates; return the candidates that gained."""
        count, saved, gained = self._counts[number], self._saved, set()
        for piece, value in old.items():
            saved[piece] -= count * value
        for piece, value in new.items():
            saved[piece] = saved.get(piece, 0) + count * value
            if value > old.get(piece, 0):
                gained.add(piece)
        return gained | {piece for piece, value in old.items() if value < new.get(piece, 0)}


def rarest_worth_adding(
    words: Mapping[str, int], vocabulary: Iterable[str], *, count: int, rarest: int
) -> int:
    """Return the minimum count for a piece to be among the best `count`, at least `rarest`.

    Whole words save a known number of pieces; a piece that occurs less than an eighth as often as
    the last of the best `count` words saves will not be among the best. Bounds the work on large
    corpora.
    """
    table = PieceTable(vocabulary)
    savings = np.array([number * (table.cost(word) - 1) for word, number in words.items()])
    if len(savings) <= count:
        return rarest
    last = int(np.partition(savings, -count)[-count])
    return max(rarest, last // _SHARE_OF_RIVAL)
