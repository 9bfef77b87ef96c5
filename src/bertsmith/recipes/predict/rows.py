"""The rows to answer for, each with the columns it has in its file, so that one goes out for each.

Of a text file or standard input every line is a row, also a blank one; of a table every row, also
one whose text is empty; of other files and folders what the task's reader gives.
"""

from __future__ import annotations

import io
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, AnyStr, BinaryIO, Generic, TypeVar, cast

from bertsmith.core.errors import ConfigError, ExampleError, UserError
from bertsmith.core.log import say
from bertsmith.core.pipes import standard_input_bytes
from bertsmith.network.config import Preprocessing
from bertsmith.tasks.config import Reading
from bertsmith.tasks.task import Task
from bertsmith.text.bad_rows import BadRows, Refuse
from bertsmith.text.config import AUTO, USUAL_TAGS, UTF8, Columns, codec_named
from bertsmith.text.corpus.documents import tidy, tidy_places
from bertsmith.text.encodings import OPTION, is_wide
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.formats.conll import is_laid_out
from bertsmith.text.examples.reading import has_cells, has_labels, read_examples, table_kind
from bertsmith.text.headers import index_of
from bertsmith.text.opening import MAX_LINE_LENGTH, TextFile, kind_of
from bertsmith.text.tables import DELIMITED, TABLES, ColumnSelection, Table, TableHead

STANDARD_INPUT = "standard input"


class Texts:
    """A stream of texts to be read once; `blank` counts the empty lines passed over.

    ``-`` is standard input, one text a line, and so is any file but .csv, .tsv, .jsonl and
    .parquet, which are read as examples whose label may be missing. Raises `ExampleError`, with
    file and line, for what cannot be read.
    """

    def __init__(self, file: str, columns: Columns) -> None:
        self.file = file
        self.blank = 0
        self._columns = columns
        self._read: Table | TextFile | None = None

    def __iter__(self) -> Iterator[Example]:
        if self.file == "-":
            self._columns.check_read(STANDARD_INPUT, "lines of text")
            return self._examples(standard_input(self._columns.encoding), STANDARD_INPUT)
        path = Path(self.file)
        if kind_of(path) in TABLES or has_labels(path, self._columns):
            return read_examples(path, self._columns, need_label=False, watch=self._watch)
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
        """Return how many bytes of the file on the disk have been read."""
        return 0 if self._read is None else self._read.bytes_read

    def _watch(self, table: Table) -> None:
        self._read = table

    def _examples(self, lines: Iterable[tuple[int, str]], source: str) -> Iterator[Example]:
        empty = True
        for line, written in lines:
            empty = False
            text = tidy(written)
            if text:
                yield Example(text=text, text_pair=None, label=None, source=source, line=line)
            else:
                self.blank += 1
        if empty:
            raise ExampleError("holds no text", where=source, remedy="write one text a line")


def standard_input(encoding: str, holds: str = "a text") -> Iterator[tuple[int, str]]:
    """Yield numbered lines of standard input, of which is said what each `holds`.

    Raises `ExampleError` for what cannot be decoded.
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
            text = written.decode(codec)
        except UnicodeDecodeError as error:
            raise ExampleError(
                f"is not {codec.upper()}: byte 0x{written[error.start]:02X}",
                where=STANDARD_INPUT,
                line=line,
                remedy=f"name its encoding: {OPTION} cp1252 or ...",
            ) from error
        yield line, text.removeprefix("\ufeff") if line == 1 else text


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


R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow(Generic[R]):
    """A row of the input: its columns as written, and the model's example; None for a blank."""

    columns: Mapping[str, object]
    example: R | None


def task_rows(
    task: Task[Any], file: str, reading: Reading, *, pairs: bool | None
) -> Iterator[InputRow[Any]]:
    """Stream the rows of a file, folder or standard input (``-``) that a task is to answer for.

    With `pairs` a line is two texts separated by a tab. Raises `ExampleError`, with file and line,
    for what cannot be read, and for single texts where pairs are wanted and the other way round.
    """
    reading.bad_rows.skip_blank = True
    path = Path(file)
    # a .txt of labels and texts with tabs, as was trained on, is a table here too
    reader = task.reader
    reads_pairs = reader.pairs and pairs is not None and file != "-"
    cells = reads_pairs and has_cells(path, reading.columns, texts=2 if pairs else 1)
    if reader.of_text is not None and reader.reads_lines(file, reading) and not cells:
        for line_row in _lines(file, reading.columns, pairs=bool(pairs)):
            row = None if line_row.example is None else reader.of_text(line_row.example)
            yield InputRow(columns=line_row.columns, example=row)
        return
    if file == "-":
        raise ExampleError(
            f"lines of text are not enough for {task.title.lower()}",
            where=STANDARD_INPUT,
            remedy="name a file of rows (.jsonl, .csv...): bertsmith predict MODEL FILE",
        )
    refusals = _Refusals(reading.bad_rows)
    watched = reading if path.is_dir() else refusals.reading(reading)
    rows = checked_pairs(reader.unlabelled(path, watched), pairs)
    table = kind_of(path) in TABLES and not path.is_dir() and reader.row_a_record(path, reading)
    if table or (cells and not has_labels(path, reading.columns)):
        delimited = cells or kind_of(path) in DELIMITED
        records = _records(path, reading)
        yield from _join_records(records, rows, refusals.lines, delimited=delimited)
        return
    for row in rows:
        location = {"file": row.source, "line": row.line} if path.is_dir() else {}
        yield InputRow(columns={**location, **task.present.inputs(row)}, example=row)


def text_rows(file: str, reading: Reading, *, pairs: bool) -> Iterator[InputRow[Example]]:
    """Stream texts, or with `pairs` texts some of which are pairs, for a pre-trained model."""
    reading.bad_rows.skip_blank = True
    path = Path(file)
    if file == "-" or kind_of(path) not in TABLES:
        yield from _lines(file, reading.columns, pairs=pairs, single=True)
        return
    refusals = _Refusals(reading.bad_rows)
    rows = read_examples(path, reading.columns, need_label=False, bad=refusals)
    delimited = kind_of(path) in DELIMITED
    yield from _join_records(_records(path, reading), rows, refusals.lines, delimited=delimited)


def value_rows(
    values: Iterable[object], task: Task[Any] | None, *, pairs: bool | None = None
) -> Iterator[InputRow[Any]]:
    """Stream texts, and pairs of texts as tuples or lists, as a task or a pre-trained model asks.

    Raises `ConfigError` for other values, and where the task asks more than texts, `ExampleError`
    as `task_rows` does.
    """
    for number, value in enumerate(values):
        parts = list(value) if isinstance(value, tuple | list) else [value]
        texts = [item for item in parts if isinstance(item, str)]
        if len(texts) != len(parts) or len(texts) not in (1, 2):
            raise ConfigError(
                f"example {number} is of type {type(value).__name__}",
                remedy="give strings, pairs of strings as tuples, or dictionaries only",
            )
        of_text = None if task is None else task.reader.of_text
        if task is not None and (of_text is None or (len(texts) > 1 and not task.reader.pairs)):
            raise ConfigError(
                f"example {number} is {'a pair of texts' if len(texts) > 1 else 'a text'}, and the "
                f"model is for {task.title.lower()}",
                remedy="give dictionaries, such as the rows of a JSONL file for that task",
            )
        columns = dict(zip(("text", "text_pair"), texts, strict=False))
        tidied = [tidy(text) for text in texts]
        row: Any = None
        if all(tidied):
            pair = tidied[1] if len(tidied) > 1 else None
            row = Example(
                text=tidied[0], text_pair=pair, label=None, source="examples", line=number + 1
            )
            (row,) = checked_pairs([row], pairs)
            row = row if of_text is None else of_text(row)
        yield InputRow(columns=columns, example=row)


def with_written_offsets(
    record: dict[str, Any], text: str, columns: Mapping[str, object]
) -> dict[str, Any]:
    """Return an answer whose entities are characters of the text as written in the input.

    Models read `text`, whose white space is single spaces.
    """
    if "entities" not in record or text in columns.values():
        return record
    strings = (value for value in columns.values() if isinstance(value, str))
    written = next((value for value in strings if tidy(value) == text), None)
    if written is None:
        return record
    offsets = tidy_places(written)
    entities = []
    for entity in record["entities"]:
        start, end = offsets[entity["start"]], offsets[entity["end"] - 1] + 1
        entities.append({**entity, "start": start, "end": end, "text": written[start:end]})
    return {**record, "entities": entities}


def reading_as_trained(
    reading: Reading, trained: Preprocessing | None, file: str, *, labelled: bool
) -> Reading:
    """Return how a file is read: with the columns of training, where none are named.

    Says so where the file lacks one: the usual names are looked for then.
    """
    columns = reading.columns
    if trained is None or file == "-":
        return reading
    reading = _tags_as_trained(reading, trained, Path(file))
    if columns.named():
        return reading
    named = {"text": trained.text_column, "text_pair": trained.text_pair_column}
    if labelled:
        named |= {"label": trained.label_column}
    trained_columns = {role: name for role, name in named.items() if name is not None}
    path = Path(file)
    if trained_columns and not path.is_dir() and kind_of(path) in TABLES:
        missing = [
            name for name in trained_columns.values() if not _has_column(path, columns, name)
        ]
        if missing:
            say(f"{path.name} has no column {missing[0]!r}, on which the model was trained")
            trained_columns = {}
    else:
        trained_columns = {}
    if labelled and columns.label_until is None and trained.label_until is not None:
        trained_columns["label_until"] = trained.label_until
    return reading.override(**{f"columns.{key}": name for key, name in trained_columns.items()})


@contextmanager
def beside_labelled_rows() -> Iterator[None]:
    """Let errors in reading texts beside a labelled file not ask for an option that is of both."""
    try:
        yield
    except ExampleError as error:
        if "-column" not in error.remedy:
            raise
        remedy = "name its columns as in the labelled file: the options apply to both"
        raise ExampleError(
            error.problem, where=error.where, line=error.line, remedy=remedy
        ) from error


def reading_of_texts(reading: Reading, texts: Path, labelled: Path) -> Reading:
    """Return how a file of texts is read, where a reading was given for a labelled file beside it.

    The columns of texts, the header, the layout of words and the encoding are the same, as far as
    the file has them; says so where it lacks a column that was named.
    """
    given = reading.columns
    columns = Columns(encoding=given.encoding)
    if not texts.is_dir() and kind_of(texts) in TABLES:
        if kind_of(texts) in DELIMITED:
            columns = replace(columns, header=given.header)
        named = [name for name in (given.text, given.text_pair, given.group) if name is not None]
        missing = [name for name in named if not _has_column(texts, given, name)]
        if missing:
            say(f"{texts.name} has no column {missing[0]!r}: the usual names are looked for")
        else:
            columns = replace(
                columns, text=given.text, text_pair=given.text_pair, group=given.group
            )
        # only some files have names for their rows
        if given.id is not None and _has_column(texts, given, given.id):
            columns = replace(columns, id=given.id)
    tags = reading.tags
    if not is_laid_out(texts, tags, kind_of(labelled), given.encoding):
        tags = USUAL_TAGS
    return Reading(columns=columns, tags=tags, on_bad=reading.on_bad)


def _tags_as_trained(reading: Reading, trained: Preprocessing, path: Path) -> Reading:
    """Return how words and tags are read: as in training, where a file can be read like that."""
    tags = trained.tags
    if tags is None or reading.tags != USUAL_TAGS:
        return reading
    if not is_laid_out(path, tags, trained.tags_kind, reading.columns.encoding):
        say(f"{path.name} is not laid out as the file on which the model was trained")
        tags = replace(USUAL_TAGS, scheme=tags.scheme)
    return reading.override(**{f"tags.{key}": value for key, value in tags.to_dict().items()})


def _has_column(path: Path, columns: Columns, name: str) -> bool:
    """Tell whether a table has a column of a name, or of a number where it is a CSV or TSV."""
    names: list[bool] = []

    def select_columns(head: TableHead) -> ColumnSelection:
        number = head.delimited and name.isdecimal() and int(name) < len(head.names)
        names.append(number or index_of(head.names, name) is not None)
        return ColumnSelection(columns=(), header=False)

    next(Table(path, ExampleError, encoding=columns.encoding).rows(select_columns), None)
    return any(names)


def checked_pairs(rows: Iterable[R], pairs: bool | None) -> Iterator[R]:
    """Yield rows; raise `ExampleError` for one that is a pair where single texts were learned."""
    for row in rows:
        if pairs is not None and isinstance(row, Example) and (row.text_pair is not None) != pairs:
            problem, remedy = (
                ("is a single text", "name the column of the second: --text-pair-column")
                if pairs
                else ("is a pair of texts", "name the column of the one text: --text-column")
            )
            learned = "pairs of texts" if pairs else "single texts"
            raise ExampleError(
                f"{problem}, and the model was trained on {learned}",
                where=row.source,
                line=row.line,
                remedy=remedy,
            )
        yield row


def _lines(
    file: str, columns: Columns, *, pairs: bool, single: bool = False
) -> Iterator[InputRow[Example]]:
    """Yield lines of a text, as pairs with a tab between; with `single` those without one too."""
    columns.check_read(file, "lines of text")
    if file == "-":
        two = "two texts separated by a tab"
        holds = f"a text, or {two}" if pairs and single else two if pairs else "a text"
        source, lines = STANDARD_INPUT, standard_input(columns.encoding, holds)
    else:
        source = file
        lines = TextFile(Path(file), ExampleError, columns.encoding).lines()
    empty = True
    for line, line_text in lines:
        empty = False
        written = line_text.rstrip("\r\n")
        if not tidy(written):
            yield InputRow(columns={"text": written}, example=None)
            continue
        first, tab, second = written.partition("\t") if pairs else (written, "", "")
        if pairs and not (single and not tab) and not (tidy(first) and tidy(second)):
            problem, remedy = (
                ("has a tab, but no text on one side of it", ", or one text without a tab")
                if single
                else ("is not a pair of texts, and the model was trained on pairs", "")
            )
            remedy = f"write both texts, separated by a tab{remedy}"
            raise ExampleError(problem, where=source, line=line, remedy=remedy)
        row = Example(
            text=tidy(first),
            text_pair=tidy(second) if tab else None,
            label=None,
            source=source,
            line=line,
        )
        shown = {"text": first, "text_pair": second} if tab else {"text": written}
        yield InputRow(columns=shown, example=row)
    if empty:
        raise ExampleError("holds no text", where=source, remedy="write one text a line")


Cells = tuple[int | None, tuple[str, ...] | None, tuple[object, ...]]
"""Line, names and cells of a record; no names for one that cannot be read."""


class _Refusals(BadRows):
    """The bad rows of a reading of one file, blank ones too, and their lines in its order."""

    def __init__(self, bad: BadRows) -> None:
        super().__init__(bad.on_bad)
        self._bad = bad
        self.lines: deque[int | None] = deque()

    def reading(self, reading: Reading) -> Reading:
        """Return a reading that gives its bad rows to these."""
        other = replace(reading)
        vars(other)["bad_rows"] = self
        return other

    def read(self, file: TextFile, rows: Callable[[Refuse], Iterator[R]]) -> Iterator[R]:
        """Yield the examples of a file, as those of the reading do."""

        def watched(refuse: Refuse) -> Iterator[R]:
            def keep(error: UserError, row: str) -> None:
                refuse(error, row)
                self.lines.append(error.line)

            return rows(keep)

        return self._bad.read(file, watched)


def _records(path: Path, reading: Reading) -> Iterator[Cells]:
    """Yield every row of a table; of a CSV or TSV the header too."""
    unreadable: list[Cells] = []
    heads: list[TableHead] = []

    def select_columns(head: TableHead) -> ColumnSelection:
        heads.append(head)
        every = tuple(range(len(head.names)))
        return ColumnSelection(columns=every, header=False, optional=frozenset(every))

    def skip(error: UserError, row: str) -> None:
        """Leave bad rows to the task's reader, which refuses them, too."""
        unreadable.append((error.line, None, ()))

    encoding = reading.columns.encoding
    kind = table_kind(path, reading.columns)
    table = Table(path, ExampleError, kind=kind, encoding=encoding, refuse=skip)
    for line, cells in table.rows(select_columns):
        record = table.record()
        yield from unreadable
        unreadable.clear()
        yield (
            (line, tuple(record), tuple(record.values()))
            if record is not None
            else (line, heads[0].names, cells)
        )
    yield from unreadable


def _join_records(
    records: Iterator[Cells],
    rows: Iterator[R],
    refused: deque[int | None],
    *,
    delimited: bool,
) -> Iterator[InputRow[R]]:
    """Join the records of a file with the rows that were read from it, in order and by their lines.

    `refused` gets the lines of the records that are no rows: JSON may have many in a line. Of a CSV
    or TSV the first record is the header, unless it was read as a row: then there is none, and
    columns are called by their numbers from 0.
    """

    def read_rows() -> Iterator[tuple[int | None, R | None]]:
        for row in rows:
            yield from ((refused.popleft(), None) for _ in range(len(refused)))
            yield _line(row), row
        yield from ((line, None) for line in refused)

    read = read_rows()
    waiting = next(read, None)
    numbers: tuple[str, ...] | None = None
    for count, (line, names, cells) in enumerate(records):
        matching = waiting if waiting is not None and waiting[0] == line else None
        if count == 0 and delimited and names is not None:
            if matching is None:
                continue
            numbers = tuple(map(str, range(len(names))))
        if matching is not None:
            waiting = next(read, None)
        if names is not None:
            example = None if matching is None else matching[1]
            columns = dict(zip(numbers or _distinct(names), cells, strict=True))
            yield InputRow(columns=columns, example=example)


@lru_cache(maxsize=1)
def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of columns, numbered where an earlier one is the same: x, x.1, x.2."""
    if len(set(names)) == len(names):
        return names
    results: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}.{number}" for number in itertools.count(1))
        free = (item for item in itertools.chain([name], numbered) if item not in results)
        results[next(item for item in free if item == name or item not in names)] = None
    return tuple(results)


def _line(row: Any) -> int:  # noqa: ANN401
    return int(row.line)
