"""Texts to be read once: of a file, or the lines of standard input."""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import AnyStr, BinaryIO, cast

from bertsmith.core.errors import ExampleError
from bertsmith.core.log import say
from bertsmith.core.pipes import standard_input_bytes
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.config import AUTO, UTF8, Columns, codec_named
from bertsmith.text.encodings import OPTION, is_wide
from bertsmith.text.examples.columns import USUAL_NAMES
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.reading import has_labels, read_examples
from bertsmith.text.opening import ESCAPED, MAX_LINE_LENGTH, TextFile, kind_of, refuse_pipe
from bertsmith.text.tables import DELIMITED, TABLES, Table
from bertsmith.text.white_space import tidy

STANDARD_INPUT = "standard input"


class Texts:
    """A stream of texts to be read once; `blank` counts the empty lines and rows passed over.

    With `keep_blank` they are texts too, "", as far as they are rows: a blank line between the rows
    of a table is none.

    ``-`` is standard input, one text a line, and so is any file but .csv, .tsv, .jsonl and
    .parquet, which are read as examples whose label may be missing. Raises `ExampleError`, with
    file and line, for what cannot be read.
    """

    def __init__(self, file: str, columns: Columns, *, keep_blank: bool = False) -> None:
        self.file = file
        self.blank = 0
        self._keep_blank = keep_blank
        self._columns = columns
        self._read: Table | TextFile | None = None

    def __iter__(self) -> Iterator[Example]:
        if self.file == "-":
            self._columns.check_read(STANDARD_INPUT, "lines of text")
            return self._examples(standard_input(self._columns.encoding), STANDARD_INPUT)
        path = Path(self.file)
        if kind_of(path) in (*DELIMITED, ".parquet"):
            refuse_pipe(path, remedy="write its rows to a file")
        if kind_of(path) in TABLES or has_labels(path, self._columns):
            return self._rows(path)
        self._columns.check_read(path, "lines of text")
        self._read = file = TextFile(path, ExampleError, self._columns.encoding)
        return self._examples(file.lines(), str(path))

    @property
    def total_bytes(self) -> float | None:
        """The size of the file, for progress bars; None of what has none."""
        path = Path(self.file)
        return path.stat().st_size if self.file != "-" and path.is_file() else None

    @property
    def bytes_read(self) -> int:
        """Return the number of bytes of the file on the disk that have been read."""
        return 0 if self._read is None else self._read.bytes_read

    def _rows(self, path: Path) -> Iterator[Example]:
        bad = BadRows()
        bad.skip_blank = True
        yield from read_examples(
            path, self._columns, need_label=False, bad=bad, watch=self._watch,
            keep_blank=self._keep_blank,
        )  # fmt: skip
        self.blank += bad.blank
        if isinstance(self._read, Table):
            self.blank += self._read.blank

    def _watch(self, table: Table) -> None:
        self._read = table

    def _examples(self, lines: Iterable[tuple[int, str]], source: str) -> Iterator[Example]:
        empty = True
        for line, written in lines:
            empty = False
            text = tidy(written)
            if text or self._keep_blank:
                yield Example(text=text, text_pair=None, label=None, source=source, line=line)
            else:
                self.blank += 1
        if empty:
            raise ExampleError("holds no text", where=source, remedy="write one text a line")


def standard_input(
    encoding: str, holds: str = "a text", *, escaped: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of standard input, of which is said what each `holds`.

    With `escaped`, undecodable bytes are kept for `undecodable_input` to find, but for UTF-16,
    UTF-32 and some encodings with escape sequences, which cannot be read beyond them. Raises
    `ExampleError` for what cannot be decoded.
    """
    # without a file it would seem to hang, or to read a table as one
    ends = "; Ctrl-D ends the input" if sys.stdin.isatty() else ""
    say(f"reading {STANDARD_INPUT}: each line is {holds}{ends}")
    codec = UTF8 if encoding == AUTO else codec_named(encoding)
    if is_wide(codec):
        yield from _wide_lines(codec)
        return
    for line, written in _numbered(standard_input_bytes().readline):
        try:
            text = written.decode(codec, "surrogateescape")
        except UnicodeDecodeError as cause:
            # of some encodings bytes below 128 may be undecodable, which have no escape
            raise _undecodable(codec, line, written[cause.start]) from cause
        if not escaped and (error := undecodable_input(text, line, encoding)):
            raise error
        if line == 1:
            text = text.removeprefix("\ufeff")
            _warn_of_columns(text.strip())
        yield line, text


def _warn_of_columns(first: str) -> None:
    """Say that columns are not taken apart, if the first line is JSON or the header of a table."""
    kind = ""
    if first.startswith('{"') and first.endswith("}"):
        kind = "JSONL"
    for delimiter, name in (("\t", "TSV"), (",", "CSV")):
        cells = [cell.strip().strip('"').casefold() for cell in first.split(delimiter)]
        named = USUAL_NAMES.intersection(cells)
        # a text may have one of the names between commas
        if len(cells) > 1 and (len(named) > 1 or (named and all(" " not in c for c in cells))):
            kind = kind or name
    if kind:
        say(
            f"warning: {STANDARD_INPUT} looks like {kind}, but its lines are read as texts: "
            f"for its columns, give a .{kind.lower()} file"
        )


def undecodable_input(text: str, line: int, encoding: str) -> ExampleError | None:
    """Return the error of a line of standard input that was read `escaped`, or None."""
    if text.isascii() or not (found := ESCAPED.search(text)):
        return None
    codec = UTF8 if encoding == AUTO else codec_named(encoding)
    return _undecodable(codec, line, ord(found[0]) - 0xDC00)


def _undecodable(codec: str, line: int, byte: int) -> ExampleError:
    return ExampleError(
        f"is not {codec.upper()}: byte 0x{byte:02X}",
        where=STANDARD_INPUT,
        line=line,
        remedy=f"name its encoding: {OPTION} cp1252 or ...",
    )


def _wide_lines(codec: str) -> Iterator[tuple[int, str]]:
    """Yield lines of UTF-16 or UTF-32, in which a line's end is no single byte."""
    line = 0
    try:
        reader = io.TextIOWrapper(cast("BinaryIO", standard_input_bytes()), encoding=codec)
        for line, text in _numbered(reader.readline):
            yield line, text
    except UnicodeError as error:
        remedy = f"name its encoding: {OPTION} NAME"
        raise ExampleError(
            f"is not {codec.upper()}", where=STANDARD_INPUT, line=line + 1, remedy=remedy
        ) from error


def _numbered(read: Callable[[int], AnyStr]) -> Iterator[tuple[int, AnyStr]]:
    """Yield lines as they come; `ExampleError` for one that has no end, which would fill memory."""
    for line in itertools.count(1):
        try:
            written = read(MAX_LINE_LENGTH + 1)
        except OSError as error:
            remedy = "name a file, or pipe texts in: cat FILE | bertsmith ..."
            problem = f"cannot be read: {error.strerror}"
            raise ExampleError(problem, where=STANDARD_INPUT, remedy=remedy) from error
        if not written:
            return
        if len(written) > MAX_LINE_LENGTH:
            remedy = "is a line end missing, or is this not text?"
            unit = "bytes" if isinstance(written, bytes) else "characters"
            problem = f"a line of over {MAX_LINE_LENGTH:,} {unit}"
            raise ExampleError(problem, where=STANDARD_INPUT, line=line, remedy=remedy)
        yield line, written
