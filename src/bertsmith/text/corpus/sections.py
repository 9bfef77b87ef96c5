"""The sections of a corpus: pieces that any process can turn into documents independently.

The end of a section depends on the file alone, so that the documents are the same whichever process
reads it and wherever an interrupted one resumes. A section of plain text ends at the first certain
end of a document past a megabyte, and past 4 million bytes at the end of a line. Sections of tables
are rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from bertsmith.core.config import Config
from bertsmith.core.errors import CorpusError
from bertsmith.text.corpus.documents import (
    HEADING_CHARACTERS,
    MAX_DOCUMENT_LENGTH,
    MAX_PARAGRAPH_LENGTH,
    Document,
    Line,
    Shape,
    documents_of_shape,
    documents_of_text,
)
from bertsmith.text.opening import TextFile, cut_line, line_ends, with_line_feeds
from bertsmith.text.tables import Table

SECTION_BYTES = 1 << 20
_BLOCK_BEFORE = 4096
_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True)
class Position(Config):
    """The position in a corpus where a section begins or ends."""

    file: int = 0
    """Number of the file, from 0."""
    offset: int = 0
    """Number of bytes of text, rows of a table, or documents before it in the file."""
    line: int = 1
    """Number of the line, from 1."""
    read: int = 0
    """Bytes read of all files, as they are on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSection:
    """A range of bytes of a plain text file, with the number of its first line."""

    source: str
    data: bytes
    first: bool
    line: int
    shape: Shape
    end: Position

    @property
    def size(self) -> int:
        """The approximate size of the text in bytes."""
        return len(self.data)

    def documents(self) -> Iterator[Document]:
        """Return the documents. Raises `CorpusError` if the bytes are not UTF-8."""
        text = TextFile(Path(self.source), CorpusError).decoded(self.data, self.line)
        lines = text.removeprefix("\ufeff" if self.first else "").split("\n")
        return documents_of_shape(self._numbered(lines), self.source, self.shape)

    def _numbered(self, lines: list[str]) -> Iterator[Line]:
        numbered = enumerate(lines, self.line)
        if len(self.data) <= MAX_PARAGRAPH_LENGTH or max(map(len, lines)) <= MAX_PARAGRAPH_LENGTH:
            return numbered
        return (
            (number, part)
            for number, line in numbered
            for part in cut_line(line, MAX_PARAGRAPH_LENGTH)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSection:
    """A range of rows of a table: their line numbers and texts."""

    source: str
    rows: tuple[Line, ...]
    size: int
    end: Position

    def documents(self) -> Iterator[Document]:
        """Return one document per row."""
        return documents_of_text(self.rows, self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSection:
    """A range of documents that have already been read."""

    given: tuple[Document, ...]
    size: int
    end: Position

    def documents(self) -> Iterator[Document]:
        """Return the documents."""
        return iter(self.given)


Section = PlainSection | RowSection | DocumentSection


def cut_text(blocks: Iterable[bytes], shape: Shape) -> Iterator[bytes]:
    """Cut the bytes of a text, or of the rest of one, into sections."""
    rest, searched = b"", 0
    for block in blocks:
        rest += block
        while True:
            end = _end_of_section(rest, searched, shape)
            if not end:
                # a run of blank lines may be incomplete
                searched = len(rest) - 2 * shape.gap - 2
                break
            yield rest[:end]
            rest, searched = rest[end:], 0
    if rest:
        yield rest


def _end_of_section(data: bytes, searched: int, shape: Shape) -> int:
    """Return the end of the first section of a text; 0 if more text is needed to decide."""
    start = max(SECTION_BYTES, searched)
    # the byte after the last is unknown: a CR there may be half of a line end
    stop = min(MAX_DOCUMENT_LENGTH, len(data) - 1)
    returns = data.find(b"\n", 0, SECTION_BYTES) < 0
    for run in _blank_lines(shape.gap, returns).finditer(data, start, stop):
        if shape.layout == "documents" or _is_no_heading(data, run.start(), shape.gap):
            half = data[run.end() - 1 : run.end() + 1] == b"\r\n"
            return run.end() + half
    return _forced_end(data) if len(data) > MAX_DOCUMENT_LENGTH else 0


@cache
def _blank_lines(count: int, returns: bool) -> re.Pattern[bytes]:
    """Compile a pattern of at least `count` empty lines whose first byte is quick to find."""
    return re.compile(rb"\r" * (count + 1) if returns else rb"\n(?:\r?\n){%d}" % count)


def _is_no_heading(data: bytes, end: int, gap: int) -> bool:
    """Return whether the text that ends here is too long to belong to what follows."""
    # a run of blank lines may be megabytes, of which each line is asked about
    if data.endswith((b"\n" * gap, b"\r" * gap, b"\r\n" * gap, b"\n\r" * gap), 0, end):
        return False
    text = data[max(0, end - _BLOCK_BEFORE) : end].decode("utf-8", "replace")
    length = blanks = 0
    for line in reversed(with_line_feeds(text).split("\n")):
        if not line or line.isspace():
            blanks += 1
            if blanks == gap:
                return False
            continue
        blanks = 0
        length += len(line.strip())
        if length >= 2 * HEADING_CHARACTERS:
            return True
    return False


def _forced_end(data: bytes) -> int:
    """Return the end of a section at the maximum length: after a line, a space, or a character."""
    for mark in (b"\n", b"\r", b" "):
        end = data.rfind(mark, MAX_DOCUMENT_LENGTH // 2, MAX_DOCUMENT_LENGTH) + 1
        if end:
            return end + (data[end - 1 : end + 1] == b"\r\n")
    end = MAX_DOCUMENT_LENGTH
    while end > MAX_DOCUMENT_LENGTH - 4 and data[end] & 0xC0 == 0x80:
        end -= 1
    return end


def plain_sections(
    file: TextFile, blocks: Iterable[bytes], shape: Shape, start: Position, done: int
) -> Iterator[PlainSection]:
    """Yield the sections of a plain text file from a position on, where `blocks` begin.

    `done` is the size of the files before this one.
    """
    offset, line = start.offset, start.line
    for data in cut_text(blocks, shape):
        first, number = offset == 0, line
        offset += len(data)
        line += line_ends(data)
        # in an uncompressed file, bytes read ahead need not count
        read = done + (file.bytes_read if file.compressed else offset)
        end = Position(file=start.file, offset=offset, line=line, read=read)
        yield PlainSection(
            source=str(file.path), data=data, first=first, line=number, shape=shape, end=end
        )


def row_sections(
    table: Table, rows: Iterable[Line], start: Position, done: int
) -> Iterator[RowSection]:
    """Yield the sections of a table from a position on, where `rows` begin."""
    source = str(table.file.path)
    for part, size, offset in in_parts(rows, lambda row: len(row[1]), SECTION_BYTES, start.offset):
        end = Position(file=start.file, offset=offset, read=done + table.bytes_read)
        yield RowSection(source=source, rows=part, size=size, end=end)


def document_sections(
    file: TextFile, documents: Iterable[Document], start: Position, done: int
) -> Iterator[DocumentSection]:
    """Yield the sections of a file of `documents` from a position on, where they begin."""
    for part, size, offset in in_parts(documents, length_of, SECTION_BYTES, start.offset):
        end = Position(file=start.file, offset=offset, read=done + file.bytes_read)
        yield DocumentSection(given=part, size=size, end=end)


def length_of(document: Document) -> int:
    """Return the characters of a document."""
    return sum(map(len, document.paragraphs))


def in_parts(
    items: Iterable[_Item], length: Callable[[_Item], int], least: int, offset: int = 0
) -> Iterator[tuple[tuple[_Item, ...], int, int]]:
    """Yield items in parts of at least a length, each with its size and the offset after it."""
    part: list[_Item] = []
    size = 0
    for item in items:
        part.append(item)
        size += length(item)
        offset += 1
        if size >= least:
            yield tuple(part), size, offset
            part, size = [], 0
    if part:
        yield tuple(part), size, offset
