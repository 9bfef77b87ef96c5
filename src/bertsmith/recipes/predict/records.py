"""Records of a table, each with all its columns, joined with the examples read from them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from bertsmith.core.errors import BlankText, ExampleError, UserError
from bertsmith.core.log import say
from bertsmith.core.printable import counted
from bertsmith.tasks.config import Reading
from bertsmith.text.bad_rows import BadRows, Refuse
from bertsmith.text.examples.reading import table_kind
from bertsmith.text.opening import TextFile
from bertsmith.text.tables import ColumnSelection, Table, TableHead

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow(Generic[R]):
    """A row of the input: its columns as written, and the model's example.

    That is None for a blank row, and for one that is `bad`.
    """

    columns: Mapping[str, object]
    example: R | None
    bad: bool = False


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
    for name in names:
        numbered = (f"{name}.{number}" for number in itertools.count(1))
        free = (item for item in itertools.chain([name], numbered) if item not in results)
        results[next(item for item in free if item == name or item not in names)] = None
    return tuple(results)


def _line(row: Any) -> int:  # noqa: ANN401
    return int(row.line)
