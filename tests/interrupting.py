"""Interruptions in the middle of some work, as by Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """Raised wherever the program is."""


def interrupt_soon() -> None:
    """Interrupt the program when it has computed for a moment."""
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)


@contextmanager
def interruptions() -> Iterator[None]:
    """Let `interrupt_soon` raise `Interrupted` meanwhile."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    earlier = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, earlier)
