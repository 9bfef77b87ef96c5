"""How long an arm may train, and what its clock shows: the wall's, or one of counted steps."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Clock:
    """A budget of minutes.

    With `tokens_per_second`, measured on a quiet machine, minutes pass with the tokens trained on,
    so that an arm may train on a busy machine. Without, they are the wall's.
    """

    minutes: float
    tokens_per_second: float | None = None

    @property
    def name(self) -> str:
        """What the tables call it."""
        return "steps" if self.tokens_per_second else "wall"


class Stopwatch:
    """Time spent in training steps; whatever happens between two steps is not counted."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seconds = 0.0
        self.tokens = 0
        self._began = 0.0

    def start(self) -> None:
        """A step begins."""
        self._began = time.perf_counter()

    def stop(self, tokens: int) -> None:
        """A step of so many tokens ends."""
        self.tokens += tokens
        if self.clock.tokens_per_second:
            self.seconds = self.tokens / self.clock.tokens_per_second
        else:
            self.seconds += time.perf_counter() - self._began

    @property
    def progress(self) -> float:
        """The share of the budget that is spent, 0 to 1."""
        return min(1.0, self.seconds / (60 * self.clock.minutes))
