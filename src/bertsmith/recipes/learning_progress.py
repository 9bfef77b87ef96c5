"""Progress bars for the phases of learning a vocabulary, and what was decided in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bertsmith.log import Bar, progress
from bertsmith.tokens.accents import AccentDecision
from bertsmith.tokens.alphabet import Alphabet
from bertsmith.tokens.observing import LearningObserver


class WatchedLearning(LearningObserver):
    """Shows a bar for each phase, one after the other, and keeps what was decided."""

    def __init__(self, shown: ExitStack) -> None:
        self.accents: AccentDecision | None = None
        self.alphabet: Alphabet | None = None
        self._shown = shown
        self._bar: Bar | None = None

    def phase(self, name: str, total: float | None, unit: str = "") -> None:
        """Show a bar for a phase, in place of the one before."""
        self._shown.close()
        self._bar = self._shown.enter_context(progress(name, total, unit))

    def advance(self, amount: float = 1) -> None:
        """Move the bar on."""
        if self._bar is not None:
            self._bar.advance(amount)

    def move_to(self, done: float) -> None:
        """Move the bar to an absolute number of units."""
        if self._bar is not None:
            self._bar.move_to(done)

    def decided(self, accents: AccentDecision) -> None:
        """Keep what was decided about accents."""
        self.accents = accents

    def covered(self, alphabet: Alphabet) -> None:
        """Keep which characters are known."""
        self.alphabet = alphabet


@contextmanager
def watched_learning() -> Iterator[WatchedLearning]:
    """Show the phases of learning until the block ends."""
    with ExitStack() as shown:
        yield WatchedLearning(shown)
