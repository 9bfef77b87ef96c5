"""What learning a vocabulary tells while it goes on: its phases, and what it decided."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar

from bertsmith.tokens.accents import AccentDecision
from bertsmith.tokens.alphabet import Alphabet

_Item = TypeVar("_Item")
_STEP = 1000


class LearningObserver:
    """Is told how far learning has come and what it decided. This one does nothing with it."""

    def phase(self, name: str, total: float | None, unit: str = "") -> None:
        """Begin a phase of so many steps; None where nobody can tell."""

    def advance(self, amount: float = 1) -> None:
        """Move on in the present phase."""

    def decided(self, accents: AccentDecision) -> None:
        """Take note of what was decided about accents."""

    def covered(self, alphabet: Alphabet) -> None:
        """Take note of the characters that are kept."""

    def each(self, items: Collection[_Item]) -> Iterator[_Item]:
        """Yield items, one step each."""
        for number, item in enumerate(items, 1):
            yield item
            if number % _STEP == 0:
                self.advance(_STEP)


SILENT = LearningObserver()
