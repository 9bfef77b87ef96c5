"""Reading of pipes that Ctrl-C always interrupts."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from pathlib import Path
from typing import cast
from weakref import WeakKeyDictionary

_WAIT_MILLISECONDS = 500
# a program that writes faster than this is read ahead: its rows stay in the same batches
_PAUSE_MILLISECONDS = 50
# what was read ahead stays with its reader
_readers: WeakKeyDictionary[io.BufferedIOBase, io.BufferedReader] = WeakKeyDictionary()


def open_file_or_pipe(path: Path) -> io.BufferedReader:
    """Open a file or pipe for reading; raises `OSError`."""
    file = path.open("rb", buffering=0)
    if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode) and hasattr(select, "poll"):
        return io.BufferedReader(_Pipe(file))
    return io.BufferedReader(file)


def standard_input_bytes() -> io.BufferedIOBase:
    """Return the reader of standard input.

    Where that is a pipe, a terminal or a socket, it is waited for; it stays open afterwards.
    """
    stream = cast("io.BufferedIOBase", sys.stdin.buffer)
    try:
        handle = stream.fileno()
        kind = os.fstat(handle).st_mode
    except (OSError, ValueError):
        return stream
    can_block = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or stat.S_ISCHR(kind)
    if not can_block or not hasattr(select, "poll"):
        return stream
    if stream not in _readers:
        _readers[stream] = io.BufferedReader(_Pipe(io.FileIO(handle, closefd=False)))
    return _readers[stream]


def standard_input_waits() -> bool:
    """Return whether no line comes for a moment, as before one is typed or logged."""
    reader = standard_input_bytes()
    if not isinstance(reader, io.BufferedReader) or not isinstance(reader.raw, _Pipe):
        return sys.stdin.isatty()
    reader.raw.waits = False
    try:
        # there may be a part of a line, and more of it in the pipe
        return b"\n" not in reader.peek(1) and not reader.raw.ready(_PAUSE_MILLISECONDS)
    finally:
        reader.raw.waits = True


class _Pipe(io.RawIOBase):
    """A pipe that is waited for a little at a time.

    Python handles a signal between two operations. One that comes after the last of them and before
    a read would be handled after that read, which may wait forever.
    """

    mode = "rb"
    waits = True

    def __init__(self, file: io.FileIO) -> None:
        self.name = file.name
        self._file = file
        self._at_end = False
        self._poll = select.poll()
        self._poll.register(file, select.POLLIN)

    def ready(self, milliseconds: int) -> bool:
        """Return whether there is something to be read, or the end, after waiting so long."""
        return self._at_end or bool(self._poll.poll(milliseconds))

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def readinto(self, buffer: bytearray | memoryview, /) -> int | None:  # type: ignore[override]
        while not self.ready(_WAIT_MILLISECONDS if self.waits else 0):
            if not self.waits:
                return None
        if self._at_end:
            count: int | None = 0
        else:
            count = self._file.readinto(buffer)
        # a terminal says once that Ctrl-D was typed: whoever only looked leaves it to the reader
        self._at_end = count == 0 and not self.waits
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
