"""Rows of a file of examples as the model will get them, for the user to check before training."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.log import say
from bertsmith.printable import printable
from bertsmith.recipes.reading import Reading
from bertsmith.recipes.tasks.task import Task

ROWS = 2
_LONGEST = 600


def tell_rows(task: Task[Any], rows: Sequence[Any], file: Path, reading: Reading) -> None:
    """Say how a file was read, and show two of its rows part by part."""
    for line in preview(task, rows, task.layout(file, reading), file, _width()):
        say(line)


def preview(task: Task[Any], rows: Sequence[Any], layout: str, file: Path, width: int) -> list[str]:
    """Return lines of at most `width` characters: how a file was read, and two rows of it.

    The second row is the first with another label, where there is one.
    """
    truth = task.truth(rows[0])
    other = [row for row in rows[1:] if task.truth(row) != truth][:1] or list(rows[1:ROWS])
    shown = [rows[0], *other]
    parts = [task.parts(row) for row in shown]
    names = max(len(name) for each in parts for name in each)
    lines = [f"{printable(file.name)}: {printable(layout or task.unit, _LONGEST)}"]
    for row, each in zip(shown, parts, strict=True):
        place = f"line {row.line}"
        for name, text in each.items():
            beginning = f"  {place:<11} {name:<{names}}  "
            lines.append(beginning + printable(text, max(width - len(beginning), 20)))
            place = ""
    return lines


def _width() -> int:
    return shutil.get_terminal_size().columns
