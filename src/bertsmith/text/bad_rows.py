"""Handling of rows that cannot be read as examples: an error, skipped, or quarantined."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypeVar

from bertsmith.core.errors import BlankText, UserError
from bertsmith.core.files import writing
from bertsmith.core.log import say
from bertsmith.core.printable import counted
from bertsmith.text.config import OnBad
from bertsmith.text.opening import TextFile

Row = TypeVar("Row")
Refuse = Callable[[UserError, str], None]
"""A function of a row's error and of the row as it is in the file."""

_MAX_ROW_LENGTH = 10_000


def fail(error: UserError, row: str) -> None:
    """Raise the error of a row."""
    del row
    raise error


class BadRows:
    """The bad rows of all files read with it: their count and the first error.

    ``fail`` raises the first. ``quarantine`` also writes them, with the reason, to
    ``SOURCE.bad.jsonl`` beside their file, or in `folder`. With `skip_blank`, rows with an empty
    text are not bad: they are skipped and counted in `blank`.
    """

    def __init__(self, on_bad: OnBad = "fail", *, folder: Path | None = None) -> None:
        self.on_bad = on_bad
        self.count = 0
        self.first: UserError | None = None
        self.files: list[Path] = []
        self.skip_blank = False
        self.blank = 0
        self._folder = folder

    @contextmanager
    def of(self, path: Path) -> Iterator[Refuse]:
        """Yield the function that takes the bad rows of a file."""
        aside = (self._folder or path.parent) / f"{path.name}.bad.jsonl"
        output: list[TextIO] = []

        def refuse(error: UserError, row: str) -> None:
            if self.skip_blank and isinstance(error, BlankText):
                self.blank += 1
                return
            if self.on_bad == "fail":
                raise error
            self.count += 1
            self.first = self.first or error
            if self.on_bad == "quarantine":
                with writing(aside, then="read the file again"):
                    if not output:
                        output.append(aside.open("w", encoding="utf-8"))
                        self.files.append(aside)
                    output[0].write(_line(error, row))

        try:
            yield refuse
        finally:
            with writing(aside, then="read the file again"):
                for file in output:
                    file.close()

    def read(self, file: TextFile, rows: Callable[[Refuse], Iterator[Row]]) -> Iterator[Row]:
        """Yield the examples of a file; raise its error if there are none, nor blank ones.

        `rows` yields them, and gives the bad rows to the function that it is called with.
        """
        before, blank, empty = self.count, self.blank, True
        with self.of(file.path) as refuse:
            for example in rows(refuse):
                empty = False
                yield example
        if empty and self.blank == blank:
            raise self.examples_missing(file, before)

    def examples_missing(self, file: TextFile, before: int) -> UserError:
        """Return the error for a file without examples; `before` bad rows are of earlier files."""
        refused = self.count - before
        if not refused or self.first is None:
            return file.fault("holds no examples", remedy="give a file with rows in it")
        bad = f"all {counted(refused, 'row')} are bad, the first of them: {self.first}"
        remedy = "correct the rows, or name the columns or the task"
        return file.fault(f"holds no examples: {bad}", remedy=remedy)

    def message(self, *, answered: int = 0) -> str | None:
        """Return a summary of the bad rows, None if there are none: count, first error, files.

        Of these, `answered` have a blank answer; the others are left out.
        """
        if self.first is None:
            return None
        rows = counted(self.count, "bad row")
        if answered == self.count:
            rows += ", with a blank answer" if answered == 1 else ", with blank answers"
        elif answered:
            rows += f", {answered:,} of them with a blank answer, the others left out"
        else:
            rows += " left out"
        places = f", kept in {', '.join(map(str, self.files))}" if self.files else ""
        return f"{rows}{places}; the first: {self.first}"

    def print(self, *, answered: int = 0) -> None:
        """Print the summary, if there are bad rows."""
        if (summary := self.message(answered=answered)) is not None:
            say(summary)


FAIL = BadRows("fail")


def _line(error: UserError, row: str) -> str:
    reason = f"{error.problem}; {error.remedy}" if error.remedy else error.problem
    kept = {"line": error.line, "reason": reason, "row": row[:_MAX_ROW_LENGTH]}
    # escaped, so that lone surrogates and undecodable bytes can be written
    return json.dumps(kept) + "\n"
