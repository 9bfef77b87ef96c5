"""Lines of a file that others append to while it is read, such as a log."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from typing import BinaryIO

from bertsmith.core.files import FileState

_BLOCK_BYTES = 1 << 20


def lines_so_far(file: BinaryIO, before: FileState) -> Generator[bytes, None, int | None]:
    """Yield the bytes of an open file as it was `before`, in blocks; if it grows, whole lines.

    Returns their number if it has grown, and 0 if it is unchanged. None if what was read may be a
    mixture of old and new, or a part: something else has happened to the file than appending, or a
    line is longer than a block.
    """
    digest, left, held = hashlib.sha256(), before.size, b""
    while left and (block := file.read(min(_BLOCK_BYTES, left))):
        digest.update(block)
        left -= len(block)
        # a line of less than a block ends in the last two
        if left and held:
            yield held
        held = block if left else held + block
    now = FileState.of(file.fileno())
    if now == before:
        if held:
            yield held
        return 0
    # the last line may be half of one that was being written
    whole = held.rfind(b"\n") + 1
    file.seek(0)
    if now.size <= before.size or not whole or _digest(file, before.size) != digest.digest():
        return None
    yield held[:whole]
    return before.size - len(held) + whole


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the SHA-256 of the next bytes of an open file, at most `size`."""
    digest = hashlib.sha256()
    while size and (block := file.read(min(_BLOCK_BYTES, size))):
        digest.update(block)
        size -= len(block)
    return digest.digest()
