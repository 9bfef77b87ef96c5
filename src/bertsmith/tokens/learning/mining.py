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

    def matches(self, word: str) -> bytearray:
        """Return the length of the longest piece at each position of a word, 0 if there is none.

        A word has up to 255 characters. Within its first piece, where no other one begins, it is 0
        as well.
        """
        matches = bytearray(len(word))
        matches[0] = self.end(word, 0)
        for start in range(matches[0] or 1, len(word)):
            matches[start] = self.end(word, start) - start
        return matches


_NO_SPLIT = 1 << 20  # more pieces than any word has


class WordSplit:
    """The split of a word by longest match first, from every position on."""

    def __init__(self, word: str, matches: Sequence[int]) -> None:
        """`matches` (characters,) are as those of `PieceTable.matches`."""
        self._word, self._matches = word, matches
        self._costs = costs = [0] * (len(word) + 1)
        for start in range(len(word) - 1, (matches[0] or 1) - 1, -1):
            match = matches[start]
            costs[start] = costs[start + match] + 1 if match else _NO_SPLIT
        costs[0] = costs[matches[0]] + 1 if matches[0] else _NO_SPLIT

    def savings(self, lengths: Sequence[int]) -> dict[str, int]:
        """Return the candidate pieces that would change the split, with their savings.

        `lengths` (characters,) are the lengths of the longest candidates at each position. Savings
        may be 0 or less. A word of one piece has no candidates.
        """
        word, costs, size = self._word, self._costs, len(self._word)
        cost = min(costs[0], size)
        savings: dict[str, int] = {}
        before = start = 0
        while start < size:
            end, before = start + self._matches[start], before + 1
            again = start > 0
            for stop in range(end + 1, min(size, start + lengths[start]) + 1):
                bare = word[start:stop]
                piece = CONTINUES + bare if start else bare
                # where a shorter one is not found again, no longer one is
                again = again and word.find(bare, stop) >= 0
                if piece not in savings:
                    rest = self._cost_with(bare, stop) if again else costs[stop]
                    savings[piece] = cost - (before + rest if rest < _NO_SPLIT else size)
            if end == start:
                break
            start = end
        return savings

    def _cost_with(self, more: str, start: int) -> int:
        """Return the number of pieces from `start` on with one more ## piece."""
        pieces, found = 0, self._word.find(more, start)
        while found >= 0:
            match = self._matches[start]
            if start == found:
                match = max(match, len(more))
            if not match:
                return _NO_SPLIT
            start, pieces = start + match, pieces + 1
            if found < start:
                found = self._word.find(more, start)
        return pieces + self._costs[start]


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
        table = PieceTable(vocabulary)
        self._words = [
            word
            for word in words
            if len(word) <= MAX_WORD_LENGTH and table.end(word, 0) < len(word)
        ]
        self._counts = [words[word] for word in self._words]
        self._lengths, self._offsets = frequent_lengths(self._words, self._counts, rarest)
        # of the pieces so far, at the same positions
        self._matches = bytearray().join(map(table.matches, self._words))
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
        places = list(self._longest_at(piece))
        before = {number: self._savings(number) for number, _ in places}
        for _, place in places:
            self._matches[place] = len(piece.removeprefix(CONTINUES))
        changed: set[str] = set()
        for number, old in before.items():
            changed |= self._record(number, self._savings(number), old)
        del self._saved[piece]
        for other in sorted(changed - {piece}):
            if (saved := self._saved[other]) > 0:
                heapq.heappush(self._heap, (-saved, other))

    def _longest_at(self, piece: str) -> Iterator[tuple[int, int]]:
        """Yield the places where a new piece would be the longest match, each after its word.

        Even if it does not change a word, it may change what another piece would save.
        """
        bare, continues_word = piece.removeprefix(CONTINUES), piece.startswith(CONTINUES)
        piece_text = bare if continues_word else f"\n{bare}"
        position = self._flat.find(piece_text)
        while position >= 0:
            at = position if continues_word else position + 1
            number = bisect_right(self._begins, at) - 1
            start, place = at - self._begins[number], at - number - 1
            reached = not start or start >= self._matches[self._offsets[number]]
            if reached and (start > 0) == continues_word and self._matches[place] < len(bare):
                yield number, place
            position = self._flat.find(piece_text, position + 1)

    def _savings(self, number: int) -> dict[str, int]:
        word, start = self._words[number], self._offsets[number]
        stop = start + len(word)
        return WordSplit(word, self._matches[start:stop]).savings(self._lengths[start:stop])

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
