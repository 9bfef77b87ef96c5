"""Stopping on request: Ctrl-C ends the step in hand, saves, and says how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user; everything is saved. The message says how to go on."""


class Requests:
    """Whether the user has asked to stop."""

    def __init__(self) -> None:
        self.stop = False

    def asked(self) -> bool:
        """Whether that is so by now."""
        return self.stop


@contextmanager
def interruptions() -> Iterator[Requests]:
    """Turn the first Ctrl-C (or SIGTERM) into a request; a second Ctrl-C interrupts at once."""
    requests = Requests()
    if threading.current_thread() is not threading.main_thread():
        yield requests
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if requests.stop and number == signal.SIGINT:
            raise KeyboardInterrupt
        requests.stop = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
