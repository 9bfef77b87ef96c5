"""Standard error of a server, whose reader may stall: no line holds up the thread that says it.

A pipe that is neither read nor closed blocks its writer for ever. Lines therefore go to
a bounded buffer, and a separate thread writes them; what finds no room there, or cannot be
written, is dropped and counted, and the count stands where the lines are missing. Making the pipe
itself non-blocking would do so for all processes that share it, the caller's shell for one.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from bertsmith.core.printable import counted

MAX_KEPT_LINES = 64 * 1024
"""Characters that wait to be written, at most."""
# pauses in which nothing is written, after which nobody is expected to read what is left at the end
_PAUSE, _MAX_PAUSES = 0.05, 40


@contextmanager
def buffered_log() -> Iterator[None]:
    """Let `sys.stderr` hold up nobody meanwhile; where nobody reads at the end, from then on too.

    Standard error that is no file of the system, as in some tests, is left alone.
    """
    stream = sys.stderr
    try:
        stream.flush()
        log = BufferedLog(stream)
    except (AttributeError, OSError, ValueError):
        yield
        return
    sys.stderr = log
    try:
        yield
    finally:
        if log.drain():
            log.end()
            sys.stderr = stream


def drain_log() -> None:
    """Wait until all lines are written or the reader stalls; for a process about to end."""
    if isinstance(sys.stderr, BufferedLog):
        sys.stderr.drain()


def write_log(text: str) -> None:
    """Write the lines of another process, which made them printable."""
    sys.stderr.write(text)


def relay_log(send: Callable[[str], None]) -> None:
    """Send what this process prints from now on to `send`."""
    sys.stderr = _RelayedLog(send)


def log_directly() -> None:
    """Print to standard error again."""
    sys.stderr = sys.__stderr__


class _RelayedLog(io.TextIOBase):
    """A stream that another process writes."""

    def __init__(self, send: Callable[[str], None]) -> None:
        super().__init__()
        self._send = send

    def write(self, text: str) -> int:
        """Send text; returns its length."""
        self._send(text)
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True


class BufferedLog(io.TextIOBase):
    """A stream in the place of another one that has a descriptor, with a thread that writes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream, self._handle = stream, stream.fileno()
        self._changed = threading.Condition()
        # texts, and numbers of lines that were dropped at their places
        self._kept: list[str | int] = []
        self._size = self._written = 0
        # no room since something was dropped; something to write; the thread is at it; no more
        self._full = self._waits = self._writes = self._ends = False
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, text: str) -> int:
        """Keep text to be written, or drop it; returns its length."""
        with self._changed:
            # what follows a dropped line is dropped too until there is room: one count is enough
            self._full = self._full or self._size + len(text) > MAX_KEPT_LINES
            if self._full:
                self._count(text.count("\n"), len(self._kept))
            else:
                self._kept.append(text)
                self._size += len(text)
            self._waits = True
            self._changed.notify_all()
        return len(text)

    def _count(self, lines: int, index: int) -> None:
        """Count dropped lines between two items of those that are kept."""
        before = self._kept[index - 1] if index else None
        if isinstance(before, int):
            self._kept[index - 1] = before + lines
        elif lines:
            self._kept.insert(index, lines)

    def _run(self) -> None:
        while (items := self._next()) is not None:
            lost = self._write_all(items)
            with self._changed:
                self._count(lost, 0)
                self._writes = False
                self._changed.notify_all()

    def _next(self) -> list[str | int] | None:
        """Return all that waits, None at the end."""
        with self._changed:
            while not self._waits:
                if self._ends:
                    return None
                self._changed.wait()
            items, self._kept, self._size = self._kept, [], 0
            self._full = self._waits = False
            self._writes = True
            return items

    def _write_all(self, items: list[str | int]) -> int:
        """Write items, however long that takes; return the lines that could not be written."""
        for number, item in enumerate(items):
            try:
                self._write_item(item)
            except OSError:
                # a full disk, a closed pipe: tried again with the next line
                return sum(n if isinstance(n, int) else n.count("\n") for n in items[number:])
        return 0

    def _write_item(self, item: str | int) -> None:
        if isinstance(item, int):
            # processes share standard error, and each counts its own lines
            problem = f"{counted(item, 'line')} of process {os.getpid()}"
            item = f"{problem} could not be written here and {'is' if item == 1 else 'are'} lost\n"
        data = item.encode(self.encoding, "backslashreplace")
        while data:
            try:
                data = data[os.write(self._handle, data) :]
            except BlockingIOError:
                # another process has made it non-blocking
                select.select([], [self._handle], [])
        with self._changed:
            self._written += 1
            self._changed.notify_all()

    def drain(self) -> bool:
        """Wait until all is written or the reader stalls; return whether all is written."""
        with self._changed:
            pauses, before = 0, self._written
            while self._waits or self._writes:
                self._changed.wait(_PAUSE)
                pauses, before = pauses + 1 if self._written == before else 0, self._written
                if pauses > _MAX_PAUSES:
                    return False
        return True

    def end(self) -> None:
        """End the thread when it has written what is left."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether standard error is an interactive terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor that is written to."""
        return self._handle

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of what is written."""
        return self._stream.encoding or "utf-8"
