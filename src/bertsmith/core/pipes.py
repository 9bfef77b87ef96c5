"""Reading of pipes that Ctrl-C always interrupts."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from pathlib import Path
from typing import cast

_WAIT_MILLISECONDS = 500


def open_file_or_pipe(path: Path) -> io.BufferedReader:
    """Open a file or pipe for reading; raises `OSError`."""
    file = path.open("rb", buffering=0)
    if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode) and hasattr(select, "poll"):
        return io.BufferedReader(_Pipe(file))
    return io.BufferedReader(file)


def standard_input_bytes() -> io.BufferedIOBase:
    """Return a reader of standard input, of which nothing has been read yet.

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
    return io.BufferedReader(_Pipe(io.FileIO(handle, closefd=False)))


class _Pipe(io.RawIOBase):
    """A pipe that is waited for a little at a time.

    Python handles a signal between two operations. One that comes after the last of them and before
    a read would be handled after that read, which may wait forever.
    """

    mode = "rb"

    def __init__(self, file: io.FileIO) -> None:
        self.name = file.name
        self._file = file
        self._ready = select.poll()
        self._ready.register(file, select.POLLIN)

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def readinto(self, buffer: bytearray | memoryview, /) -> int | None:  # type: ignore[override]
        while not self._ready.poll(_WAIT_MILLISECONDS):
            pass
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
