"""What is worked out for stretches of text when they are first met, and then remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_REMEMBERED = 200_000
_LONGEST_REMEMBERED = 48

Worked = TypeVar("Worked")


class Remembered(dict[str, Worked]):
    """The ids of a stretch of text, or whatever else depends on nothing but the stretch.

    Memory is bounded: when it is full, everything is forgotten; long stretches are not kept.
    """

    def __init__(self, work_out: Callable[[str], Worked]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, stretch: str) -> Worked:
        found = self._work_out(stretch)
        if len(stretch) <= _LONGEST_REMEMBERED:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[stretch] = found
        return found
