"""Rows of CSV, TSV, JSONL and Parquet files, optionally compressed, in constant memory."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertsmith.core.errors import UserError
from bertsmith.core.files import json_problem, parse_json
from bertsmith.core.printable import counted
from bertsmith.text.bad_rows import Refuse, fail
from bertsmith.text.config import AUTO, HeaderOption
from bertsmith.text.headers import (
    NAMED,
    Header,
    check_unique,
    column_of,
    described_columns,
    stated_header,
    undecided,
)
from bertsmith.text.opening import COMPRESSED, MAX_LINE_LENGTH, TextFile, kind_of
from bertsmith.text.parquet_columns import class_names, column_values, field_of, inner_fields
from bertsmith.text.structured import LocatedJson

# a bad row of more lines is skipped as a whole once so many have been read again: reading them all
# again would take quadratic time
_LINES_READ_AGAIN = 1000
_MAX_READ_AGAIN = 500_000
_MAX_ROW_LINES = 500_000
# lines of a row from which on they are looked at, and the share of them that look like rows
_LINES_IN_QUOTES = 10
_SHARE_IN_QUOTES = 0.9
_SAMPLE = 20
_BLANK_AND_QUOTE = re.compile(r' +"')
# Excel writes it, perhaps in quotes, and shows it as no row; it may be padded with delimiters
_STATED_DELIMITER = re.compile(r'"?sep=(?P<delimiter>[,;|\t])"?(?P=delimiter)*', re.IGNORECASE)
_REMEDY = 'write a quote inside quotes twice (""), and close every quote'


class _Lines:
    """An iterator of lines for the parser that keeps the current row's, to read them again."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines = lines
        self._again: deque[tuple[int, str]] = deque()
        self._left = _MAX_READ_AGAIN
        self.row: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        if len(self.row) == _MAX_ROW_LINES:
            # an open quote; the lines take far more memory than their characters
            self._again.appendleft(line)
            raise csv.Error(f"a row of over {_MAX_ROW_LINES:,} lines")
        self.row.append(line)
        return line[1]

    def after_first(self) -> str:
        """Go back to the line after the first of a bad row; return the skipped text."""
        is_long = len(self.row) > _LINES_READ_AGAIN
        self._left -= len(self.row) if is_long else 0
        skipped = self.row if is_long and self._left < 0 else self.row[:1]
        self._again.extendleft(reversed(self.row[len(skipped) :]))
        self.row = []
        return "".join(text for _, text in skipped).rstrip("\r\n")


def comma_rows(file: TextFile) -> Iterator[tuple[int, list[str] | UserError, str]]:
    """Yield first line, cells and text of every row, with the error in place of bad cells.

    Line ends inside a cell are those of the file, so that positions in it stay what they are. A
    cell of many lines most of which look like rows is an error: a quote is missing or too many.

    The delimiter is the comma unless the first line is Excel's ``sep=;``, or the first lines make
    rows of one length only with semicolons, tabs or bars. Quotes may stand after a blank, as in
    ``a, "b, c"``, if the first rows have them so.
    """
    # the module's default limit of 128 K characters a field is too small for long texts
    csv.field_size_limit(MAX_LINE_LENGTH)
    lines = file.lines_as_written()
    first = list(islice(lines, _SAMPLE))
    if first and (stated := _STATED_DELIMITER.fullmatch(first[0][1].rstrip("\r\n"))):
        delimiter = stated["delimiter"]
        del first[0]
    else:
        delimiter = _delimiter([text for _, text in first])
    padded = _blank_before_quotes([text for _, text in first], delimiter)
    feed = _Lines(chain(first, lines))
    while True:
        try:
            for row in csv.reader(feed, delimiter=delimiter, skipinitialspace=padded, strict=True):
                line, text = feed.row[0][0], feed.row[0][1].rstrip("\r\n")
                if _encloses_rows(feed.row, len(row), delimiter):
                    lines_below = len(feed.row) - 1
                    raise csv.Error(f"a quote is closed {lines_below:,} lines below, after rows")
                if error := _undecodable(file, feed.row):
                    yield line, error, text
                else:
                    yield line, row, text
                feed.row = []
            return
        except csv.Error as refusal:
            line = feed.row[0][0]
            fault = file.fault(f"not CSV: {refusal}", line, _REMEDY)
            yield line, fault, feed.after_first()


def _encloses_rows(lines: Sequence[tuple[int, str]], columns: int, delimiter: str) -> bool:
    """Return whether the lines inside a row look like rows: a quote is missing or too many."""
    if len(lines) < _LINES_IN_QUOTES or columns < 2:
        return False
    inner = lines[1:-1]
    alike = sum(text.count(delimiter) == columns - 1 for _, text in inner)
    return alike >= _SHARE_IN_QUOTES * len(inner)


def _delimiter(lines: list[str]) -> str:
    """Detect the delimiter from the first lines."""
    for delimiter in (",", ";", "\t", "|"):
        if lines and delimiter in lines[0]:
            rows = csv.reader(lines, delimiter=delimiter)
            with suppress(csv.Error):  # reported when the rows are read
                if len({len(row) for row in rows if row}) == 1:
                    return delimiter
    return next((sign for sign in ",;\t|" if lines and sign in lines[0]), ",")


def _blank_before_quotes(lines: list[str], delimiter: str) -> bool:
    """Return whether cells are quoted after a blank in the first rows.

    They are if the rows are of one length only so, or if most of them have such a cell.
    """
    try:
        plain = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        quoted = sum(any(map(_BLANK_AND_QUOTE.match, row)) for row in plain)
        lengths = _row_lengths(lines, delimiter) if quoted else []
    except csv.Error:
        return False
    alone = {len(row) for row in plain} != set(lengths)
    return len(set(lengths)) == 1 and (alone or 2 * quoted >= len(lengths))


def _row_lengths(lines: list[str], delimiter: str) -> list[int]:
    """Return the lengths of rows whose quotes may stand after a blank; raise `csv.Error`."""
    rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    lengths: list[int] = []
    try:
        for row in filter(None, rows):
            lengths.append(len(row))
    except csv.Error:
        # the last row may go on below
        if rows.line_num < len(lines):
            raise
    return lengths


def _undecodable(file: TextFile, lines: list[tuple[int, str]]) -> UserError | None:
    errors = (file.undecodable(text, line) for line, text in lines)
    return next((error for error in errors if error is not None), None)


DELIMITED = (".csv", ".tsv")
JSON = (".jsonl", ".json")
KEYED = (*JSON, ".parquet")
"""Tables whose values have names, and may be lists."""
TABLES = (*DELIMITED, *KEYED)
SAMPLE_ROWS = 1000
_SAMPLE_CHARACTERS = 2**22
PARQUET_ROWS = 256

# objects inside an object whose keys are columns, too
_LEVELS = 3
_ABSENT = object()

Cells = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """The head of a table, known before its rows are read.

    `names` are the columns' names; in a CSV or TSV, the cells of the first row, header or not; in
    JSON those of the keys of the first rows, also of objects inside a record, as ``review.text``.
    In Parquet the last `inner` names are of fields inside a column, in the same form. `sample`
    holds the first rows, including that one.
    """

    names: tuple[str, ...]
    inner: int = 0
    sample: Sequence[Sequence[str]] = ()
    delimited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSelection:
    """Indices of the columns to read and of optional ones; whether the first row is a header."""

    columns: tuple[int, ...]
    header: bool = True
    optional: frozenset[int] = field(default_factory=frozenset)


class Table:
    """A table to be read once, with the class of its errors.

    `kind` is the extension if the file's own is not that of a table. Lines count from 1; in a
    Parquet file they are the rows. A row that cannot be read goes to `refuse`, which raises by
    default; the first row must be valid. Empty lines are no rows, and are counted in `blank`; with
    `empty_rows`, lines of only delimiters below the first row are rows.
    """

    def __init__(
        self,
        path: Path,
        error: type[UserError],
        *,
        kind: str | None = None,
        encoding: str = AUTO,
        refuse: Refuse = fail,
        empty_rows: bool = False,
    ) -> None:
        self.file = TextFile(path, error, encoding)
        self.blank = 0
        self._kind = kind or kind_of(path)
        self._share: float | None = None
        self._refuse = refuse
        self._empty_rows = empty_rows
        self._row: object = ""
        self._record: dict[str, object] | None = None

    @property
    def bytes_read(self) -> int:
        """Number of bytes of the file on disk that have been read, for progress bars."""
        if self._share is None:
            return self.file.bytes_read
        return int(self._share * self.file.path.stat().st_size)

    def row(self) -> str:
        """Return the text of the last row, as in the file or nearly so."""
        return self._written(self._row)

    def record(self) -> dict[str, object] | None:
        """Return all keys and values of the last JSON record; None for other tables."""
        return self._record

    def _written(self, row: object) -> str:
        if isinstance(row, str):
            return row
        if isinstance(row, list) and self._kind == ".tsv":
            return "\t".join(row)
        return json.dumps(row, ensure_ascii=False, default=str)

    def rows(
        self, select_columns: Callable[[TableHead], ColumnSelection]
    ) -> Iterator[tuple[int, Cells]]:
        """Yield line and chosen cells of every row; `select_columns` gets the head, may raise."""
        if self._kind == ".parquet":
            return self._parquet(select_columns)
        read = self._delimited if self._kind in DELIMITED else self._json_lines
        return read(select_columns)

    def head(self) -> TableHead | None:
        """Return the head; None for a table without rows."""
        heads: list[TableHead] = []

        def keep(head: TableHead) -> ColumnSelection:
            heads.append(head)
            return ColumnSelection(columns=(), header=False)

        next(self.rows(keep), None)
        return heads[0] if heads else None

    def texts(self, column: str, header: HeaderOption = "auto") -> Iterator[tuple[int, str]]:
        """Yield line and text of every row with a text in a column given by name or position.

        A list of strings is a text with a string in each line.
        """
        for line, (text,) in self.rows(lambda head: self._text(head, column, header)):
            if isinstance(text, str):
                yield line, text
            elif isinstance(text, list) and all(isinstance(part, str) for part in text):
                yield line, "\n".join(text)
            elif text is not None:
                remedy = "name a column of strings"
                raise self.file.fault(f"{column!r} is {type_of(text)}, not text", line, remedy)

    def described(self, column: str, option: HeaderOption = "auto") -> str:
        """Return a short description of the header and the text column."""
        head = self.head()
        if head is None:
            return "no rows"
        header, index = self._column(head, column, option)
        return described_columns(self._kind, head.names, header, {"text": index}, head.sample)

    def _text(self, head: TableHead, column: str, option: HeaderOption) -> ColumnSelection:
        header, index = self._column(head, column, option)
        return ColumnSelection(columns=(index,), header=header.present is not False)

    def _column(self, head: TableHead, column: str, option: HeaderOption) -> tuple[Header, int]:
        """Return the header and the index of a column given by name or by position."""
        header = NAMED
        if head.delimited:
            header = stated_header(option, head.sample, (column,), (column.strip().casefold(),))
        named_by = "--text-column"
        index = column_of(
            column, head.names, header, self.file, sample=head.sample, option=named_by
        )
        if header.present is None:
            raise undecided(header, head.names, self.file)
        return header, index

    def _delimited(
        self, select_columns: Callable[[TableHead], ColumnSelection]
    ) -> Iterator[tuple[int, Cells]]:
        rows = self._filled(comma_rows(self.file) if self._kind == ".csv" else self._tabs())
        sample = list(islice(rows, SAMPLE_ROWS))
        if not sample:
            return
        if isinstance(sample[0][1], UserError):
            raise sample[0][1]
        cells = [cells for _, cells, _ in sample if not isinstance(cells, UserError)]
        head = TableHead(names=tuple(cells[0]), sample=cells, delimited=True)
        picked = select_columns(head)
        for line, row, text in chain(sample[picked.header :], rows):
            # not before: bad rows are refused in the order of the file
            if isinstance(row, UserError):
                self._refuse(row, text)
                continue
            if len(row) != len(head.names):
                problem = f"{counted(len(row), 'column')} where the first row has {len(head.names)}"
                remedy = self._ragged(titled=len(head.names) == 1)
                self._refuse(self.file.fault(problem, line, remedy), self._written(row))
                continue
            self._row = row
            yield line, tuple(row[index] for index in picked.columns)

    def _ragged(self, *, titled: bool) -> str:
        above = "; or remove what is above its header, such as a title" if titled else ""
        if self._kind == ".csv":
            return f'put texts that contain commas or line ends in quotes: "..."{above}'
        return (
            "replace tabs and line ends inside the text with spaces, or, if cells with them are in "
            f"quotes, name the file .csv{above}"
        )

    def _tabs(self) -> Iterator[tuple[int, list[str] | UserError, str]]:
        for line, text, error in self._lines():
            yield line, error or text.split("\t"), text

    def _filled(
        self, rows: Iterator[tuple[int, list[str] | UserError, str]]
    ) -> Iterator[tuple[int, list[str] | UserError, str]]:
        """Yield the rows with text in a cell, and the empty ones that are wanted."""
        columns = 0
        for line, row, text in rows:
            if isinstance(row, UserError) or any(not cell.isspace() for cell in row if cell):
                columns = columns or (0 if isinstance(row, UserError) else len(row))
                yield line, row, text
            # exporters write an empty cell that is alone in its row as ""
            elif self._empty_rows and len(row) == columns and (columns > 1 or text.strip()):
                yield line, row, text
            else:
                self.blank += 1

    def _lines(self) -> Iterator[tuple[int, str, UserError | None]]:
        """Yield lines, with the error of one that is undecodable, which the first must not be."""
        first = True
        for line, text in self.file.lines(escaped=True):
            error = self.file.undecodable(text, line)
            if first and error is not None:
                raise error
            yield line, text, error
            first = False

    def _json_lines(
        self, select_columns: Callable[[TableHead], ColumnSelection]
    ) -> Iterator[tuple[int, Cells]]:
        rows = self._objects() if self._kind == ".jsonl" else self._records()
        sample = list(_sample(rows))
        # exporters leave out keys without a value, in the first record as in any other
        records = [row for _, _, row in sample if isinstance(row, dict)]
        names = tuple(dict.fromkeys(name for row in records for name in _names(row))) or ("",)
        picked = select_columns(TableHead(names=names)) if records else ColumnSelection(columns=())
        keys = [names[index] for index in picked.columns]
        wanted = {names[index] for index in picked.columns if index not in picked.optional}
        for line, text, row in chain(sample, rows):
            self._row = text
            if isinstance(row, UserError):
                self._refuse(row, text)
                continue
            values = {key: _value(row, key) for key in keys}
            lacking = next((key for key in keys if key in wanted and values[key] is _ABSENT), None)
            if lacking is not None:
                remedy = "every row must hold the same keys"
                self._refuse(self.file.fault(f"has no {lacking!r}", line, remedy), text)
                continue
            self._record = row
            yield line, tuple(None if values[key] is _ABSENT else values[key] for key in keys)

    def _objects(self) -> Iterator[tuple[int, str, dict[str, object] | UserError]]:
        """Yield line, text and object of every line of JSONL."""
        for line, text, error in self._lines():
            if text and not text.isspace():
                yield line, text, error or self._object(line, text)
            else:
                self.blank += 1

    def _records(self) -> Iterator[tuple[int, str, dict[str, object] | UserError]]:
        """Yield line, text and object of every record of a JSON file."""
        for value, line in LocatedJson(self.file).records():
            text = json.dumps(value, ensure_ascii=False)
            if isinstance(value, dict):
                yield line, text, value
            else:
                problem = f"{type_of(value)}, not a JSON object"
                yield line, text, self.file.fault(problem, line, 'write [{"text": "..."}, ...]')

    def _object(self, line: int, text: str) -> dict[str, object] | UserError:
        remedy = 'each line must be an object of its own, such as {"text": "..."}'
        try:
            row = parse_json(text)
        except ValueError as error:
            return self.file.fault(f"not JSON: {json_problem(error)}", line, remedy)
        if isinstance(row, list) and len(row) == 2:
            remedy = 'write a pair as an object: {"text": "...", "text_pair": "..."}'
        if not isinstance(row, dict):
            return self.file.fault(f"{type_of(row)}, not a JSON object", line, remedy)
        return row

    def _parquet(
        self, select_columns: Callable[[TableHead], ColumnSelection]
    ) -> Iterator[tuple[int, Cells]]:
        import pyarrow as pa

        self._share = 0.0
        try:
            with ExitStack() as stack:
                source = stack.enter_context(self.file.open())
                before = self.file.state()
                try:
                    yield from self._batches(source, select_columns, stack)
                except (pa.ArrowException, OSError, UnicodeDecodeError):
                    self.file.check_unchanged(before)
                    raise
                self.file.check_unchanged(before)
        # a name or a text that is not UTF-8 is found when it becomes a string of Python
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            remedy = "copy or export it again"
            raise self.file.fault(f"not a valid Parquet file: {error}", None, remedy) from error

    def _batches(
        self,
        source: Any,  # noqa: ANN401
        select_columns: Callable[[TableHead], ColumnSelection],
        stack: ExitStack,
    ) -> Iterator[tuple[int, Cells]]:
        from pyarrow import parquet

        if self.file.path.suffix.lower() in COMPRESSED:
            # Parquet is read from its end, so it must be on disk uncompressed
            unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            shutil.copyfileobj(source, unpacked)
            source = unpacked
        # at the end of the process, threads of pyarrow that hold bytes of `source` would abort it
        opened: Any = stack.enter_context(parquet.ParquetFile(source, pre_buffer=False))
        columns = tuple(opened.schema_arrow.names)
        inner = inner_fields(opened.schema_arrow, _LEVELS)
        names = (*columns, *inner)
        picked = select_columns(TableHead(names=names, inner=len(inner)))
        classes = class_names(opened.schema_arrow.metadata)
        paths = [inner.get(names[index], (names[index],)) for index in picked.columns]
        for column, *_ in paths:
            check_unique(columns.index(column), columns, NAMED, self.file)
        line = 1
        wanted = [column for column, *_ in paths]
        batches = opened.iter_batches(PARQUET_ROWS, columns=wanted, use_threads=False)
        for batch in batches:
            values = [
                column_values(field_of(batch, path), classes.get(".".join(path), ()))
                for path in paths
            ]
            for cells in zip(*values, strict=True):
                self._row = cells
                yield line, cells
                line += 1
            self._share = line / (opened.metadata.num_rows + 1)


def _sample(
    rows: Iterator[tuple[int, str, dict[str, object] | UserError]],
) -> Iterator[tuple[int, str, dict[str, object] | UserError]]:
    """Yield the first rows, until they are many or long."""
    characters = 0
    for row in islice(rows, SAMPLE_ROWS):
        yield row
        characters += len(row[1])
        if characters > _SAMPLE_CHARACTERS:
            return


def _names(row: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of a record's columns."""
    yield from row
    yield from _inner_names(row)


def _inner_names(row: Mapping[str, object], levels: int = _LEVELS) -> Iterator[str]:
    """Yield the keys of objects inside a record, with a dot after the key of each object."""
    for key, value in row.items():
        if levels and isinstance(value, dict):
            inner = (*value, *_inner_names(value, levels - 1))
            yield from (f"{key}.{name}" for name in inner)


def _value(row: Mapping[str, object], name: str) -> object:
    """Return the value of a key, or of keys of objects inside the record with dots between."""
    if name in row:
        return row[name]
    key, dot, rest = name.partition(".")
    inner = row.get(key)
    return _value(inner, rest) if dot and isinstance(inner, dict) else _ABSENT


def type_of(value: object) -> str:
    """Return the name of a value's type in JSON or, if it has none there, in Parquet."""
    kinds = {bool: "true or false", list: "a list", dict: "an object", str: "a string"}
    kinds |= {bytes: "bytes", type(None): "null"}
    other = "a number" if isinstance(value, int | float) else f"a {type(value).__name__}"
    return kinds.get(type(value), other)
