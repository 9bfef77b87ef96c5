"""How a word is cut by the pieces of a vocabulary that grows, and what one more would change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bertsmith.tokens.wordpiece import CONTINUES


class PieceTable:
    """The pieces of a growing vocabulary, and how they cut a word, longest match first."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._first: set[str] = set()
        self._later: set[str] = set()
        self._longest = 0
        for piece in pieces:
            self.add(piece)

    def add(self, piece: str) -> None:
        """Add a piece; one that goes on a word begins with ##."""
        bare = piece.removeprefix(CONTINUES)
        (self._later if piece.startswith(CONTINUES) else self._first).add(bare)
        self._longest = max(self._longest, len(bare))

    def remove(self, piece: str) -> None:
        """Take out a piece that is there."""
        goes_on = piece.startswith(CONTINUES)
        (self._later if goes_on else self._first).remove(piece.removeprefix(CONTINUES))

    def end(self, word: str, start: int) -> int:
        """Where the longest piece at a place ends; the place itself if there is none."""
        pieces = self._later if start else self._first
        end = min(len(word), start + self._longest)
        while end > start and word[start:end] not in pieces:
            end -= 1
        return end

    def cut(self, word: str, start: int = 0) -> list[str] | None:
        """The pieces of a word from a place on; None where it cannot be told, and is [UNK]."""
        found: list[str] = []
        while start < len(word):
            end = self.end(word, start)
            if end == start:
                return None
            found.append(CONTINUES + word[start:end] if start else word[:end])
            start = end
        return found

    def cost(self, word: str) -> int:
        """Pieces of a word; as many as it has characters where it cannot be told."""
        pieces = self.cut(word)
        return len(word) if pieces is None else len(pieces)

    def savings(self, word: str, lengths: Sequence[int]) -> dict[str, int]:
        """The pieces that would change how a word is cut, and how many pieces each would save.

        `lengths` (characters,) are the longest candidates to consider at each place. Some save 0
        or less. A word of one piece is changed by none.
        """
        path = _Path(self, word)
        whole = path.starts(0)
        cost = len(word) if whole is None else len(whole)
        found: dict[str, int] = {}
        before = start = 0
        while start < len(word):
            end = path.end(start)
            for stop in range(end + 1, min(len(word), start + lengths[start]) + 1):
                bare = word[start:stop]
                piece = CONTINUES + bare if start else bare
                if piece not in found:
                    found[piece] = cost - path.cost_after(before + 1, stop, bare if start else "")
            if end == start:
                break
            before, start = before + 1, end
        return found


class _Path:
    """How one word is cut from any place on, worked out once for each place."""

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
        """Where pieces begin from a place on, with one more ## piece; None if it cannot be told."""
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
        """Pieces of the word when `before` of them reach up to `stop`."""
        rest = self.starts(stop, more)
        return len(self._word) if rest is None else before + len(rest)
