"""What an unfinished store is made from and how far it has come, line by line in a file.

A line carries a checksum: one that a crash cut short is not believed, nor any after it.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from bertsmith.batches.writing import WriterState
from bertsmith.config import Config
from bertsmith.disk import flush_to_disk, write_whole
from bertsmith.errors import ConfigError, StoreError
from bertsmith.text.sections import Position


@dataclass(frozen=True, kw_only=True)
class SourceFile(Config):
    """A file as it was when reading began."""

    path: str
    """Where it lies."""
    size: int
    """Its bytes."""
    changed: int
    """When it was last changed, in nanoseconds."""


@dataclass(frozen=True, kw_only=True)
class Source(Config):
    """What a store is made from; from another source it would be another store."""

    version: str
    """Version of the program."""
    vocabulary: str
    """Fingerprint of the vocabulary."""
    held_out: float
    """Share of the documents that is held out."""
    text_column: str
    """Column of the text in tables."""
    header: str
    """Whether the first lines of tables are headers, or auto."""
    layout: str
    """Layout of plain text."""
    encoding: str
    """Encoding of the files, or auto."""
    text_files: tuple[str, ...]
    """Patterns of names of files that are read as plain text."""
    files: tuple[SourceFile, ...]
    """The files of the corpus."""


@dataclass(frozen=True, kw_only=True)
class Progress(Config):
    """How far a store has come."""

    position: Position
    """Where in the corpus to read on."""
    train: WriterState
    """What is written of the documents to train on."""
    held_out: WriterState
    """What is written of the held-out documents."""
    digests: int
    """Different texts seen."""
    duplicates: int
    """Documents left out."""


@dataclass(frozen=True, kw_only=True)
class _Line(Config):
    source: Source | None = None
    progress: Progress | None = None


class Journal:
    """The journal of an unfinished store, which begins with a source."""

    def __init__(self, path: Path) -> None:
        """Read what is there; `StoreError` where another version wrote it."""
        self._path = path
        self._lines: list[_Line] = []
        self._ends: list[int] = []
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            total, _, text = line.partition(b" ")
            if not text.endswith(b"\n") or total != b"%08x" % zlib.crc32(text[:-1]):
                break
            try:
                self._lines.append(_Line.from_dict(json.loads(text)))
            except ConfigError:
                raise self.refusal("was begun by another version of bertsmith") from None
            self._ends.append(self._size + len(line))

    @property
    def progress(self) -> Progress | None:
        """The last progress noted."""
        noted = (line.progress for line in reversed(self._lines) if line.progress is not None)
        return next(noted, None)

    def go_on(self, source: Source) -> None:
        """Go on from the last progress all of whose files are still as they were, or anew.

        Files that had not been reached may have changed. Raises `StoreError` when there is progress
        but with other settings, or with files that all have changed.
        """
        before = [line.source for line in self._lines if line.source is not None]
        if not any(line.progress for line in self._lines):
            self._forget(0)
        elif before[-1] != source:
            self._forget(self._still_good(before[-1], source))
        if not self._lines or before[-1] != source:
            self._append(_Line(source=source))

    def note(self, progress: Progress) -> None:
        """Add a line; all that it counts must be on the disk."""
        self._append(_Line(progress=progress))

    def refusal(self, what: str) -> StoreError:
        """An error that says why the store cannot be gone on with, and what to do."""
        return StoreError(
            f"an unfinished store that {what}",
            where=self._path.parent,
            remedy="begin anew with --fresh, or go on with what it was begun with",
        )

    @property
    def _size(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _still_good(self, before: Source, source: Source) -> int:
        """How many lines hold good for a changed source."""
        for name, told in (
            ("version", "version of bertsmith"),
            ("vocabulary", "vocabulary"),
            ("held_out", "--held-out"),
            ("text_column", "--text-column"),
            ("header", "--header"),
            ("layout", "--layout"),
            ("encoding", "--encoding"),
            ("text_files", "--text-files"),
        ):
            if getattr(before, name) != getattr(source, name):
                raise self.refusal(f"was begun with another {told}")
        pairs = zip(before.files, source.files, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        good = 0
        for number, line in enumerate(self._lines, 1):
            if line.progress is not None and line.progress.position.file < same:
                good = number
        if not good:
            raise self.refusal("was begun with other text, or this has changed since")
        return good

    def _forget(self, good: int) -> None:
        """Drop all lines but the first."""
        del self._lines[good:], self._ends[good:]

    def _append(self, line: _Line) -> None:
        text = json.dumps(line.to_dict()).encode()
        data = b"%08x %s\n" % (zlib.crc32(text), text)
        new = not self._path.exists()
        with self._path.open("wb" if new else "r+b", buffering=0) as file:
            # what is no good goes; half a line would hide those that follow
            file.truncate(self._size)
            file.seek(self._size)
            write_whole(file, data)
            os.fsync(file.fileno())
        if new:
            flush_to_disk(self._path.parent)
        self._ends.append(self._size + len(data))
        self._lines.append(line)
