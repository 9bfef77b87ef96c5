"""The rows to answer for, each with the columns it has in its file, so that one goes out for each.

Of a text file or standard input every line is a row, also a blank one; of a table every row, also
one whose text is empty; of other files and folders what the task's reader gives. The records of a
table are read beside the examples that the reader makes of them, and joined with these by lines.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from bertsmith.core.errors import BlankText, ConfigError, ExampleError, UserError
from bertsmith.core.log import say
from bertsmith.core.printable import counted
from bertsmith.recipes.predict.texts import STANDARD_INPUT, standard_input, undecodable_input
from bertsmith.tasks.config import Reading
from bertsmith.tasks.task import Task
from bertsmith.tasks.whole_texts import text_inputs
from bertsmith.text.bad_rows import BadRows, Refuse
from bertsmith.text.config import Columns
from bertsmith.text.examples.example import Example, as_written
from bertsmith.text.examples.reading import Check, has_cells, has_labels, read_examples, table_kind
from bertsmith.text.opening import TextFile, kind_of, refuse_pipe
from bertsmith.text.tables import DELIMITED, TABLES, ColumnSelection, Table, TableHead
from bertsmith.text.white_space import tidy, tidy_places

EXAMPLES = "examples"
"""The source of examples that are no file's."""

R = TypeVar("R")
_Undecodable = Callable[[str, int], UserError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow(Generic[R]):
    """A row of the input: its columns as written, and the model's example.

    That is None for a blank row, and for one that is `bad`.
    """

    columns: Mapping[str, object]
    example: R | None
    bad: bool = False


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
        for line_row in _lines(file, reading, pairs=bool(pairs)):
            row = None if line_row.example is None else reader.of_text(line_row.example)
            yield replace(line_row, example=row)
        return
    if file == "-":
        raise ExampleError(
            f"lines of text are not enough for {task.title.lower()}",
            where=STANDARD_INPUT,
            remedy="name a file of rows (.jsonl, .csv...): bertsmith predict MODEL FILE",
        )
    refusals = Refusals(reading.bad_rows)
    watched = reading if path.is_dir() else refusals.reading(reading)
    rows = checked_pairs(reader.unlabelled(path, watched), pairs)
    table = kind_of(path) in TABLES and not path.is_dir() and reader.row_a_record(path, reading)
    if table or (cells and not has_labels(path, reading.columns)):
        delimited = cells or kind_of(path) in DELIMITED
        records = table_records(path, reading)
        yield from join_records(records, rows, refusals.refused, delimited=delimited)
        return
    for row in rows:
        location = {"file": row.source, "line": row.line} if path.is_dir() else {}
        yield InputRow(columns={**location, **task.present.inputs(row)}, example=row)


def text_rows(
    file: str, reading: Reading, *, pairs: bool, check: Check | None = None
) -> Iterator[InputRow[Example]]:
    """Stream texts, or with `pairs` texts some of which are pairs, for a pre-trained model.

    Those for which `check` raises `ExampleError` are bad rows.
    """
    reading.bad_rows.skip_blank = True
    path, columns = Path(file), reading.columns
    if file != "-" and has_labels(path, columns):
        bad = reading.bad_rows
        for row in read_examples(path, columns, need_label=False, bad=bad, check=check):
            yield InputRow(columns=text_inputs(row), example=row)
        return
    if file == "-" or kind_of(path) not in TABLES:
        yield from _lines(file, reading, pairs=pairs, single=True, check=check)
        return
    refuse_pipe(
        path, remedy="write its rows to a file, or give a text a line as standard input (-)"
    )
    refusals = Refusals(reading.bad_rows)
    rows = read_examples(path, columns, need_label=False, bad=refusals, check=check)
    delimited = kind_of(path) in DELIMITED
    yield from join_records(
        table_records(path, reading), rows, refusals.refused, delimited=delimited
    )


def refuse_choice(file: str, columns: Columns) -> None:
    """Raise `ConfigError` for a choice of classes, other than among the folders of a folder."""
    if columns.exclude or (columns.classes and not Path(file).is_dir()):
        raise ConfigError(
            "--classes and --exclude choose rows by their labels, which are not read here",
            remedy="leave them out",
        )


def value_rows(
    values: Iterable[object],
    task: Task[Any] | None,
    *,
    pairs: bool | None = None,
    or_dictionaries: bool = False,
) -> Iterator[InputRow[Any]]:
    """Stream texts, and pairs of texts as tuples or lists, as a task or a pre-trained model asks.

    With `or_dictionaries` the caller reads these in place of texts, and errors name them. Raises
    `ConfigError` for other values, and where the task asks more than texts, `ExampleError` as
    `task_rows` does.
    """
    for number, value in enumerate(values):
        parts = list(value) if isinstance(value, tuple | list) else [value]
        texts = [item for item in parts if isinstance(item, str)]
        if len(texts) != len(parts) or len(texts) not in (1, 2):
            items = f", of {len(parts)} items" if isinstance(value, tuple | list) else ""
            if items and len(parts) in (1, 2):
                items = ", of other things than strings"
            remedy = "give strings, or pairs of strings as tuples"
            if or_dictionaries:
                remedy = "give strings, pairs of strings as tuples, or dictionaries only"
            raise ConfigError(
                f"example {number} is of type {type(value).__name__}{items}", remedy=remedy
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
                text=tidied[0], text_pair=pair, label=None, source=EXAMPLES, line=number + 1,
                written=as_written(tidied[0], texts[0]),
            )  # fmt: skip
            (row,) = checked_pairs([row], pairs, in_columns=False)
            row = row if of_text is None else of_text(row)
        yield InputRow(columns=columns, example=row)


def with_written_offsets(record: dict[str, Any], written: str | None) -> dict[str, Any]:
    """Return an answer whose entities are characters of the text as written in the input.

    Models read a text whose white space is single spaces; `written` is None where it is that.
    """
    if "entities" not in record or written is None:
        return record
    offsets = tidy_places(written)
    entities = []
    for entity in record["entities"]:
        start, end = offsets[entity["start"]], offsets[entity["end"] - 1] + 1
        entities.append({**entity, "start": start, "end": end, "text": written[start:end]})
    return {**record, "entities": entities}


def checked_pairs(rows: Iterable[R], pairs: bool | None, *, in_columns: bool = True) -> Iterator[R]:
    """Yield rows; raise `ExampleError` for one that is a pair where single texts were learned.

    Its remedy names columns, unless the texts are values, not `in_columns`.
    """
    for row in rows:
        if pairs is not None and isinstance(row, Example) and (row.text_pair is not None) != pairs:
            problem, remedy = (
                ("is a single text", "name the column of the second: --text-pair-column")
                if pairs
                else ("is a pair of texts", "name the column of the one text: --text-column")
            )
            if not in_columns:
                remedy = "give pairs of strings as tuples" if pairs else "give single strings"
            learned = "pairs of texts" if pairs else "single texts"
            raise ExampleError(
                f"{problem}, and the model was trained on {learned}",
                where=row.source,
                line=row.line,
                remedy=remedy,
            )
        yield row


def _lines(
    file: str, reading: Reading, *, pairs: bool, single: bool = False, check: Check | None = None
) -> Iterator[InputRow[Example]]:
    """Yield lines of a text, as pairs with a tab between; with `single` those without one too."""
    bad, columns = reading.bad_rows, reading.columns
    columns.check_read(file, "lines of text")
    is_pipe = file == "-" or Path(file).is_fifo()
    if is_pipe and bad.on_bad == "quarantine":
        name = STANDARD_INPUT if file == "-" else file
        raise ConfigError(
            f"bad rows are written beside their file, and {name} is none",
            remedy="give --on-bad skip, or name a file",
        )
    if file == "-":
        two = "two texts separated by a tab"
        holds = f"a text, or {two}" if pairs and single else two if pairs else "a text"
        source = STANDARD_INPUT
        lines = standard_input(columns.encoding, holds, escaped=bad.on_bad != "fail")
        undecodable: _Undecodable = partial(undecodable_input, encoding=columns.encoding)
    else:
        text_file = TextFile(Path(file), ExampleError, columns.encoding)
        source, lines = file, text_file.lines(escaped=bad.on_bad != "fail")
        undecodable = text_file.undecodable
    empty = True
    with bad.of(Path(source)) as refuse:
        for line, written in lines:
            empty = False
            if error := undecodable(written, line):
                refuse(error, written)
                # what is not text cannot be written with the answers
                data = written.rstrip("\r\n").encode("utf-8", "surrogateescape")
                shown = data.decode("utf-8", "replace")
                yield InputRow(columns={"text": shown}, example=None, bad=True)
            else:
                row = _line_row(source, line, written, refuse, pairs=pairs, single=single)
                yield row if check is None else _checked_row(row, check, refuse, written)
    if empty:
        raise ExampleError("holds no text", where=source, remedy="write one text a line")


def _checked_row(
    row: InputRow[Example], check: Check, refuse: Refuse, written: str
) -> InputRow[Example]:
    """Return the row of a line, without its text if that is bad."""
    try:
        if row.example is not None:
            check(row.example)
    except ExampleError as error:
        refuse(error, written)
        return replace(row, example=None, bad=True)
    return row


def _line_row(
    source: str, line: int, line_text: str, refuse: Refuse, *, pairs: bool, single: bool
) -> InputRow[Example]:
    """Return the row of a line."""
    written = line_text.rstrip("\r\n")
    if not tidy(written):
        return InputRow(columns={"text": written}, example=None)
    first, tab, second = written.partition("\t") if pairs else (written, "", "")
    shown = {"text": first, "text_pair": second} if tab else {"text": written}
    if pairs and not (single and not tab) and not (tidy(first) and tidy(second)):
        problem, remedy = (
            ("has a tab, but no text on one side of it", ", or one text without a tab")
            if single
            else ("is not a pair of texts, and the model was trained on pairs", "")
        )
        remedy = f"write both texts, separated by a tab{remedy}"
        refuse(ExampleError(problem, where=source, line=line, remedy=remedy), written)
        return InputRow(columns=shown, example=None, bad=True)
    text = tidy(first)
    row = Example(
        text=text,
        text_pair=tidy(second) if tab else None,
        label=None,
        source=source,
        line=line,
        written=as_written(text, first),
    )
    return InputRow(columns=shown, example=row)


# the records of a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The line of a record that is no row, as it is blank or `bad`."""

    line: int | None
    bad: bool


Cells = tuple[int | None, tuple[str, ...] | None, tuple[object, ...]]
"""Line, names and cells of a record; no names for one that cannot be read."""


class Refusals(BadRows):
    """The bad rows of a reading of one file, and what was refused, blank rows too, in its order."""

    def __init__(self, bad: BadRows) -> None:
        super().__init__(bad.on_bad)
        self._bad = bad
        self.refused: deque[Refusal] = deque()

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
                self.refused.append(Refusal(line=error.line, bad=not isinstance(error, BlankText)))

            return rows(keep)

        return self._bad.read(file, watched)


def table_records(path: Path, reading: Reading) -> Iterator[Cells]:
    """Yield every row of a table, also empty ones; of a CSV or TSV the header too.

    Says how many lines are no rows because they are blank.
    """
    unreadable: list[Cells] = []
    heads: list[TableHead] = []

    def select_columns(head: TableHead) -> ColumnSelection:
        heads.append(head)
        every = tuple(range(len(head.names) - head.inner))
        return ColumnSelection(columns=every, header=False, optional=frozenset(every))

    def skip(error: UserError, row: str) -> None:
        """Leave bad rows to the task's reader, which refuses them, too."""
        unreadable.append((error.line, None, ()))

    encoding = reading.columns.encoding
    kind = table_kind(path, reading.columns)
    table = Table(path, ExampleError, kind=kind, encoding=encoding, refuse=skip, empty_rows=True)
    for line, cells in table.rows(select_columns):
        record = table.record()
        yield from unreadable
        unreadable.clear()
        yield (
            (line, tuple(record), tuple(record.values()))
            if record is not None
            else (line, heads[0].names[: len(cells)], cells)
        )
    yield from unreadable
    if table.blank:
        say(f"{path.name}: {counted(table.blank, 'blank line')} skipped")


def join_records(
    records: Iterator[Cells], rows: Iterator[R], refused: deque[Refusal], *, delimited: bool
) -> Iterator[InputRow[R]]:
    """Join the records of a file with the rows that were read from it, in order and by their lines.

    `refused` gets the records that are no rows: JSON may have many in a line. Of a CSV
    or TSV the first record is the header, unless it was read as a row: then there is none, and
    columns are called by their numbers from 0.
    """

    def read_rows() -> Iterator[tuple[int | None, R | Refusal]]:
        for row in rows:
            yield from ((refused[0].line, refused.popleft()) for _ in range(len(refused)))
            yield _line(row), row
        yield from ((refusal.line, refusal) for refusal in refused)

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
            columns = dict(zip(numbers or _distinct(names), cells, strict=True))
            read_as = None if matching is None else matching[1]
            if isinstance(read_as, Refusal):
                yield InputRow(columns=columns, example=None, bad=read_as.bad)
            else:
                yield InputRow(columns=columns, example=read_as)


@lru_cache(maxsize=1)
def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of columns, numbered where an earlier one is the same: x, x.1, x.2."""
    if len(set(names)) == len(names):
        return names
    results: dict[str, None] = {}
    numbers = {name: itertools.count(1) for name in names}
    for name in names:
        item = name
        while item in results or (item != name and item in numbers):
            item = f"{name}.{next(numbers[name])}"
        results[item] = None
    return tuple(results)


def _line(row: Any) -> int:  # noqa: ANN401
    return int(row.line)
