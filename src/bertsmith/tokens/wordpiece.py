"""Words to pieces: greedy longest match first, remembered for the words already met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

LONGEST_WORD = 100
CONTINUES = "##"

_REMEMBERED = 200_000
_LONGEST_REMEMBERED = 48


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
        self._longest_first = max(map(len, self._first), default=0)
        self._longest_later = max(map(len, self._later), default=0)

    def ids(self, word: str) -> list[int]:
        """The pieces' ids; one [UNK] for words that do not fit or have over 100 characters."""
        whole = self._first.get(word)
        length = len(word)
        if length > LONGEST_WORD:
            return self._unknown
        if whole is not None:
            return [whole]
        ids: list[int] = []
        pieces, longest, start = self._first, self._longest_first, 0
        while start < length:
            end = min(length, start + longest)
            while end > start and word[start:end] not in pieces:
                end -= 1
            if end == start:
                return self._unknown
            ids.append(pieces[word[start:end]])
            pieces, longest, start = self._later, self._longest_later, end
        return ids

    def ids_of(self, words: Iterable[str]) -> list[int]:
        """The ids of several words, end to end."""
        return [number for word in words for number in self.ids(word)]


class ChunkIds(dict[str, tuple[int, ...]]):
    """The ids of a blank-free stretch of text, worked out when first met and then remembered.

    Blanks part words whatever stands around them, so stretches are independent of each other.
    Memory is bounded: when it is full, everything is forgotten; long stretches are not kept.
    """

    def __init__(self, work_out: Callable[[str], Iterable[int]]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        ids = tuple(self._work_out(chunk))
        if len(chunk) <= _LONGEST_REMEMBERED:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[chunk] = ids
        return ids
