"""What becomes of rows that cannot be read as examples: an error, left out, or put aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TextIO

from bertsmith.core.errors import BlankText, UserError
from bertsmith.core.files import writing
from bertsmith.text.opening import TextFile

OnBad = Literal["fail", "skip", "quarantine"]
Refuse = Callable[[UserError, str], None]
"""Takes the fault of a row and the row as it stands in the file."""

_LONGEST_ROW = 10_000


def fail(error: UserError, row: str) -> None:
    """Let the fault of a row end the reading."""
    del row
    raise error


class BadRows:
    """Counts the rows that were refused, over all files read with it, and keeps the first fault.

    ``fail`` raises the first. ``quarantine`` also writes them, with the reason, to
    ``SOURCE.bad.jsonl`` beside the file they are from, or in `folder`. With `skip_blank`, rows with
    an empty text are no bad rows: they are left out and counted in `blank`.
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
        """What takes the bad rows of a file."""
        aside = (self._folder or path.parent) / f"{path.name}.bad.jsonl"
        written: list[TextIO] = []

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
                    if not written:
                        written.append(aside.open("w", encoding="utf-8"))
                        self.files.append(aside)
                    written[0].write(_line(error, row))

        try:
            yield refuse
        finally:
            with writing(aside, then="read the file again"):
                for file in written:
                    file.close()

    def told(self) -> str | None:
        """How many rows were refused, why the first, and where they are; None of none."""
        if self.first is None:
            return None
        rows = f"{self.count:,} bad row{'s' * (self.count != 1)} left out"
        places = f", kept in {', '.join(map(str, self.files))}" if self.files else ""
        return f"{rows}{places}; the first: {self.first}"


FAIL = BadRows("fail")


def examples_missing(file: TextFile, bad: BadRows, before: int) -> UserError:
    """The fault of a file that gave no example, `before` bad rows having been met before it."""
    refused = bad.count - before
    if not refused or bad.first is None:
        return file.fault("holds no examples", remedy="give a file with rows in it")
    return file.fault(
        f"holds no examples: all {refused:,} rows are bad, the first of them: {bad.first}",
        remedy="mend the rows, or name the columns or the task",
    )


def _line(error: UserError, row: str) -> str:
    reason = f"{error.what}; {error.remedy}" if error.remedy else error.what
    kept = {"line": error.line, "reason": reason, "row": row[:_LONGEST_ROW]}
    # escaped, so that half characters and bytes that are no text can be written
    return json.dumps(kept) + "\n"
