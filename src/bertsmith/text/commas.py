"""Rows of CSV, quoted as in RFC 4180; after a bad row the reading goes on at the next line."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice

from bertsmith.errors import UserError
from bertsmith.text.opening import LONGEST_LINE, TextFile

# a bad row of more lines is left out as a whole: to read them all again would take their square
_LINES_READ_AGAIN = 1000
_SAMPLE = 20
_REMEDY = 'write a quote inside quotes twice (""), and close every quote'


class _Lines:
    """Lines for the parser, those of the row in hand being kept in case they are read again."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines = lines
        self._again: deque[tuple[int, str]] = deque()
        self.row: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self.row.append(line)
        return line[1] + "\n"

    def after_first(self) -> str:
        """Go back to the line after the first of a bad row; the text that is left out."""
        left_out = self.row if len(self.row) > _LINES_READ_AGAIN else self.row[:1]
        self._again.extendleft(reversed(self.row[len(left_out) :]))
        self.row = []
        return "\n".join(text for _, text in left_out)


def comma_rows(file: TextFile) -> Iterator[tuple[int, list[str] | UserError, str]]:
    """First line, cells and text of every row; in place of the cells, what is wrong with them.

    Commas stand between cells or, where those of the first lines do not make rows of one length,
    semicolons, tabs or bars that do.
    """
    # the module's own limit of 128 K characters a field is short of long texts
    csv.field_size_limit(LONGEST_LINE)
    lines = file.lines(escaped=True)
    first = list(islice(lines, _SAMPLE))
    delimiter = _delimiter([text for _, text in first])
    feed = _Lines(chain(first, lines))
    while True:
        try:
            for row in csv.reader(feed, delimiter=delimiter, strict=True):
                line, text = feed.row[0]
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


def _delimiter(lines: list[str]) -> str:
    """Return what stands between the cells of some first lines."""
    for delimiter in (",", ";", "\t", "|"):
        if lines and delimiter in lines[0]:
            rows = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter)
            with suppress(csv.Error):  # the reading itself says what is wrong
                if len({len(row) for row in rows if row}) == 1:
                    return delimiter
    return next((each for each in ",;\t|" if lines and each in lines[0]), ",")


def _undecodable(file: TextFile, lines: list[tuple[int, str]]) -> UserError | None:
    found = (file.undecodable(text, line) for line, text in lines)
    return next((error for error in found if error is not None), None)
