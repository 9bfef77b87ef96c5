"""Answers as people and programs read them: a table for the eye, CSV or JSON lines.

In CSV and JSON lines every row keeps the columns of the input, and the answer follows them; where
an input column has the name of a part of the answer, that part is called ``predicted_`` and its
name. A blank row has empty values, or null.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from bertsmith.core.errors import ExampleError
from bertsmith.core.output import print_json, print_line

Format = Literal["table", "csv", "jsonl"]
Record = Mapping[str, Any]

# parts of an answer that say in more words what the others say
_ONLY_JSON = ("probabilities", "n_best")
_PREFIX = "predicted_"


class Answers:
    """Writes answers to standard output, in the order of their rows.

    Raises `ExampleError` for an input column that comes later and has the name of an answer's.
    """

    def __init__(self, form: Format) -> None:
        self._form: Format = form
        self._waiting: list[Record] = []
        self._names: dict[str, str] | None = None
        self._header: list[str] = []
        self._csv = csv.writer(_Lines(), lineterminator="\n")

    def blank(self, columns: Record) -> None:
        """Write a row that asks nothing."""
        if self._form == "table":
            print_line("")
        elif self._names is None:
            # what an answer has is known from the first one
            self._waiting.append(columns)
        else:
            self._emit(columns, dict.fromkeys(self._names))

    def add(self, columns: Record, record: Record, lines: Callable[[], Iterator[str]]) -> None:
        """Write a row with its answer; `lines` are those for people."""
        if self._form == "table":
            for line in lines():
                print_line(line)
            return
        if self._form == "csv":
            record = _flat(record)
        if self._names is None:
            self._begin(columns, record)
        self._emit(columns, record)

    def end(self) -> None:
        """Write blank rows that no answer followed."""
        if self._names is None and self._waiting:
            self._begin(self._waiting[0], {})

    def _begin(self, columns: Record, record: Record) -> None:
        inputs = list(dict.fromkeys(name for row in (*self._waiting, columns) for name in row))
        self._names = {key: _PREFIX + key if key in inputs else key for key in record}
        clash = next((name for name in self._names.values() if name in inputs), None)
        if clash is not None:
            raise _taken(clash)
        if self._form == "csv":
            self._header = inputs
            self._csv.writerow([*inputs, *self._names.values()])
        waiting, self._waiting = self._waiting, []
        for row in waiting:
            self._emit(row, dict.fromkeys(self._names))

    def _emit(self, columns: Record, record: Record) -> None:
        assert self._names is not None
        names = self._names
        if self._form == "csv":
            if unknown := [name for name in columns if name not in self._header]:
                what = f"a row has the column {unknown[0]!r}, which the first one lacks"
                raise ExampleError(what, remedy="write --format jsonl")
            cells = [_cell(columns.get(name)) for name in self._header]
            self._csv.writerow([*cells, *(_cell(record.get(key)) for key in names)])
            return
        answer = {names.get(key, key): value for key, value in record.items()}
        clash = next((name for name in answer if name in columns), None)
        if clash is not None:
            raise _taken(clash)
        print_json({**columns, **answer}, readable=True)


class _Lines:
    """Takes the lines that the CSV writer makes."""

    def write(self, line: str) -> int:
        """Write a line with its end."""
        print_line(line.removesuffix("\n"), exact=True)
        return len(line)


def _taken(name: str) -> ExampleError:
    what = f"a row has a column {name!r}, and so has its answer"
    return ExampleError(what, remedy="rename that column of the input")


def _flat(record: Record) -> dict[str, Any]:
    """Return an answer as single values: labels with | between them, other lists as JSON."""
    return {
        key: "|".join(value)
        if isinstance(value, list) and all(isinstance(part, str) for part in value)
        else value
        for key, value in record.items()
        if key not in _ONLY_JSON
    }


def _cell(value: object) -> object:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value
