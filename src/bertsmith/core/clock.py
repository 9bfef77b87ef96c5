"""The wall clock of a run, over all its sittings, and when the command began."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path


class Clock:
    """The seconds that a run has taken.

    A resumed run starts at the seconds of its earlier sittings; the time between two sittings does
    not count.
    """

    def __init__(
        self, started: float | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`started` is when this sitting began, on the clock `now`; the present if it is None."""
        self.now = now
        self._began = now() if started is None else started
        self._before = 0.0
        self.startup = now() - self._began
        """Seconds that had passed already when this was made: Python's start and its imports."""

    @property
    def elapsed(self) -> float:
        """Seconds of all sittings."""
        return self._before + self.now() - self._began

    def resume(self, before: float) -> None:
        """Add the seconds of earlier sittings."""
        self._before = before


_command: ContextVar[float | None] = ContextVar("command", default=None)


@contextmanager
def command_from(started: float) -> Iterator[None]:
    """Make `command_start` return this time inside the block."""
    token = _command.set(started)
    try:
        yield
    finally:
        _command.reset(token)


def command_start() -> float:
    """Return when the command began, by `time.monotonic`; now if there is no command."""
    started = _command.get()
    return time.monotonic() if started is None else started


def process_start() -> float:
    """Return when this process began, as `time.monotonic` counts.

    That is when the process was started, before Python had imported anything; below torchrun when
    torchrun was, unless it has restarted its processes. Now where the system does not record it.
    """
    ages = [_process_age(os.getpid())]
    if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
        ages.append(_process_age(os.getppid()))
    return time.monotonic() - max(ages)


def _process_age(pid: int) -> float:
    """Return the seconds since a process was started; 0 if the system does not record it."""
    with suppress(ValueError, IndexError, AttributeError):
        started = int(process_fields(pid)[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    return 0.0


def process_fields(pid: int) -> list[str]:
    """Return what Linux reports of a process, from field 3 of proc_pid_stat(5) on; else []."""
    with suppress(OSError):
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # the second field, the program's name in brackets, may hold blanks
        return line.rpartition(")")[2].split()
    return []
