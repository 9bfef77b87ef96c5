"""Stopping on request: Ctrl-C ends the step in hand, saves, and says how to go on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from bertsmith.core.signals import handled


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
    """Turn the first Ctrl-C (or SIGTERM, SIGHUP) into a request; a second Ctrl-C ends at once."""
    requests = Requests()

    def ask(number: int) -> None:
        if requests.stop and number == signal.SIGINT:
            raise KeyboardInterrupt
        requests.stop = True

    with handled(ask):
        yield requests
