"""Words to pieces: greedy longest match first, remembered for the words already met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LONGEST_WORD = 100
CONTINUES = "##"

_PREFIX = 3
_SHORT = (2, 1)  # sizes of pieces below that of a prefix


class WordPiece:
    """Cuts words into pieces of a vocabulary (Wu et al. 2016, section 4.1, greedily)."""

    def __init__(self, vocabulary: Sequence[str], unknown_id: int) -> None:
        self._unknown = [unknown_id]
        self._first: dict[str, int] = {}
        self._later: dict[str, int] = {}
        for number, piece in enumerate(vocabulary):
            self._first[piece] = number
            if piece.startswith(CONTINUES):
                self._later[piece.removeprefix(CONTINUES)] = number
        self._first_sizes = _sizes(self._first)
        self._later_sizes = _sizes(self._later)

    def ids(self, word: str) -> list[int]:
        """The pieces' ids; one [UNK] for words that do not fit or have over 100 characters."""
        length = len(word)
        if length > LONGEST_WORD:
            return self._unknown
        if word in self._first:
            return [self._first[word]]
        ids: list[int] = []
        pieces, sizes, start = self._first, self._first_sizes, 0
        while start < length:
            for size in sizes.get(word[start : start + _PREFIX], _SHORT):
                number = pieces.get(word[start : start + size])
                if number is not None:
                    break
            else:
                return self._unknown
            ids.append(number)
            pieces, sizes, start = self._later, self._later_sizes, start + size
        return ids

    def ids_of(self, words: Iterable[str]) -> list[int]:
        """The ids of several words, end to end."""
        return [number for word in words for number in self.ids(word)]


def _sizes(pieces: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The sizes of pieces that begin with each three characters, longest first, then 2 and 1."""
    sizes: dict[str, set[int]] = {}
    for piece in pieces:
        sizes.setdefault(piece[:_PREFIX], set(_SHORT)).add(len(piece))
    return {prefix: tuple(sorted(found, reverse=True)) for prefix, found in sizes.items()}
