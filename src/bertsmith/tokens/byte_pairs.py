"""Byte-pair encoding over bytes: a vocabulary without unknown characters (Radford et al. 2019).

Each byte is written as a printable character, so that pieces are words of a text file. Pairs of
pieces are joined in the order in which the joins were learned (Sennrich et al. 2016, section 3.2).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cache

Merges = Sequence[tuple[str, str]]


@cache
def byte_letters() -> tuple[str, ...]:
    """The character that stands for each byte, 0 to 255: itself where it is printable."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


@cache
def _bytes() -> dict[str, int]:
    return {letter: byte for byte, letter in enumerate(byte_letters())}


def written(text: str) -> str:
    """A text with each byte of its UTF-8 as a character; half characters as three bytes."""
    letters = byte_letters()
    return "".join(letters[byte] for byte in text.encode("utf-8", "surrogatepass"))


def read(pieces: str) -> bytes:
    """The bytes that pieces are written for; characters that stand for none as their UTF-8."""
    table = _bytes()
    return b"".join(
        bytes((table[letter],)) if letter in table else letter.encode("utf-8", "surrogatepass")
        for letter in pieces
    )


BLANK = written(" ")


class BytePairs:
    """Cuts words, written as bytes, into pieces."""

    def __init__(self, merges: Merges) -> None:
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._pairs = list(merges)

    def cut(self, word: str) -> list[str]:
        """The pieces of a word: of all pairs the one learned first is joined, wherever it stands.

        n log n of the length, so that a page without blanks is no trap.
        """
        joining = _Joining(word)
        waiting: dict[int, list[int]] = {}
        order: list[int] = []

        def meet(place: int) -> None:
            rank = self._ranks.get(joining.pair(place))
            if rank is not None:
                if rank not in waiting:
                    heapq.heappush(order, rank)
                waiting.setdefault(rank, []).append(place)

        for place in range(len(word) - 1):
            meet(place)
        while order:
            rank = heapq.heappop(order)
            for place in sorted(waiting.pop(rank)):
                if joining.pair(place) == self._pairs[rank]:
                    for new in joining.join(place):
                        meet(new)
        return joining.pieces()


class _Joining:
    """A word while its pieces are joined; a piece's place is that of its first character."""

    def __init__(self, word: str) -> None:
        self._pieces = list(word)
        self._next = list(range(1, len(word) + 1))
        self._before = list(range(-1, len(word) - 1))

    def pair(self, place: int) -> tuple[str, str]:
        """The piece at a place and the one behind it; pieces that are gone are empty."""
        after = self._next[place]
        return self._pieces[place], self._pieces[after] if after < len(self._pieces) else ""

    def join(self, place: int) -> list[int]:
        """Join the pair at a place; returns the places of the pairs this makes."""
        gone = self._next[place]
        self._pieces[place] += self._pieces[gone]
        self._pieces[gone] = ""
        after = self._next[place] = self._next[gone]
        if after < len(self._pieces):
            self._before[after] = place
        before = self._before[place]
        return [before, place] if before >= 0 else [place]

    def pieces(self) -> list[str]:
        """What the word was joined to."""
        return [piece for piece in self._pieces if piece]
