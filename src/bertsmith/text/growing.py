"""Files of lines that others append to while they are read, such as logs."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bertsmith.core.files import FileState
from bertsmith.core.log import say

_BLOCK_BYTES = 1 << 20
_opened: dict[Path, OpenedFile] = {}


class OpenedFile:
    """A file of lines as it was when it was first opened, which later readings of it keep to."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._reported = False
        self._before: FileState | None = None
        # known at the end of the first whole reading
        self._size: int | None = None
        self._digest = b""

    def state(self, now: FileState) -> FileState:
        """Return the state of the file when it was first opened, by default that of `now`."""
        self._before = self._before or now
        return self._before

    def blocks(self, file: BinaryIO) -> Generator[bytes, None, bool]:
        """Yield the bytes of the open file in blocks; if it has grown, whole lines, and say so.

        Returns False if what was read may be a mixture of old and new, or a part: something else
        has happened to the file than appending, or a line is longer than a block.
        """
        before = self.state(FileState.of(file.fileno()))
        limit = left = before.size if self._size is None else self._size
        digest, held = hashlib.sha256(), b""
        while left and (block := file.read(min(_BLOCK_BYTES, left))):
            left -= len(block)
            # a line of less than a block ends in the last two
            if left and held:
                digest.update(held)
                yield held
            held = block if left else held + block
        now = FileState.of(file.fileno())
        if now != before and now.size <= before.size:
            return False
        whole = len(held)
        if self._size is not None:
            # another reading, begun later, may have ended meanwhile
            whole -= limit - self._size
        elif now != before:
            # the last line may be half of one that was being written
            whole = held.rfind(b"\n") + 1
            if not whole:
                return False
        size = limit - len(held) + whole
        digest.update(held[:whole])
        if now != before and _digest(file, size) != digest.digest():
            return False
        if self._size is not None and self._digest != digest.digest():
            return False
        self._size, self._digest = size, digest.digest()
        if now != before and not self._reported:
            self._reported = True
            say(
                f"{self._name} grew while it was read: of its lines, those were read that it had "
                f"when it was opened, {size:,} bytes"
            )
        yield held[:whole]
        return True


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the SHA-256 of the first bytes of an open file, at most `size`."""
    digest = hashlib.sha256()
    file.seek(0)
    while size and (block := file.read(min(_BLOCK_BYTES, size))):
        digest.update(block)
        size -= len(block)
    return digest.digest()


@contextmanager
def as_first_opened(path: Path) -> Iterator[None]:
    """Have all readings of a file of lines in the block end where the first of them ends.

    Without it a file that grows while it is read is an error.
    """
    key = path.absolute()
    if key in _opened:
        yield
        return
    _opened[key] = OpenedFile(path.name)
    try:
        yield
    finally:
        del _opened[key]


def opened_file(path: Path) -> OpenedFile | None:
    """Return the file as it was first opened, in a block of `as_first_opened`; else None."""
    return _opened.get(path.absolute())
