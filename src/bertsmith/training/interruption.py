"""Stopping on request: Ctrl-C finishes the current step, saves, and tells how to continue."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from bertsmith.core.signals import handled


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user and is saved; the message tells how to continue."""


class Requests:
    """The user's request to stop."""

    def __init__(self) -> None:
        self.stop = False

    def asked(self) -> bool:
        """Return whether the user has asked to stop."""
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
