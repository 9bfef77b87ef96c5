"""SHA-256 of texts and files, and files that are hashed on their way to the disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from io import FileIO
from pathlib import Path
from typing import NamedTuple, Protocol

from bertsmith.core.files import open_regular, write_whole, writing

_READ = 1 << 20
_BLOCK = 4 << 20


class Record(NamedTuple):
    """A file as it was written."""

    bytes: int
    sha256: str


class Digest(Protocol):
    """A hash of hashlib."""

    def update(self, data: bytes, /) -> None:
        """Add some bytes."""

    def hexdigest(self) -> str:
        """Return the hash of all bytes added."""


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8 as hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_hash(
    path: Path, seen: Callable[[int], None] | None = None, digest: Digest | None = None
) -> str:
    """Return the SHA-256 of a regular file as hexadecimal, or add the file to another digest.

    `seen` is called with the size of each block that is read.
    """
    digest = digest or hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_READ):
            digest.update(block)
            if seen is not None:
                seen(len(block))
    return digest.hexdigest()


class HashedFile:
    """A file that is hashed while it is written, new or after the first `size` bytes of its own."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        self.size = size
        self._digest = hashlib.sha256()
        self._file: FileIO = path.open("r+b" if size else "wb", buffering=0)
        left = size
        while left and (block := self._file.read(min(left, _READ))):
            self._digest.update(block)
            left -= len(block)
        self._file.truncate()

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        view = memoryview(data)
        for begin in range(0, len(view), _BLOCK):
            block = view[begin : begin + _BLOCK]
            write_whole(self._file, block)
            self._digest.update(block)
        self.size += len(view)

    def close(self) -> Record:
        """Close the file when all of it is on the disk."""
        os.fsync(self._file.fileno())
        self._file.close()
        return Record(self.size, self._digest.hexdigest())

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.close()


def write_parts(path: Path, parts: Iterable[bytes | memoryview]) -> Record:
    """Write a file of these parts, one after the other; raises `DiskError`."""
    with writing(path):
        file = HashedFile(path)
        try:
            for part in parts:
                file.write(part)
            return file.close()
        finally:
            file.abandon()
