"""The rows of a file: the task that they are for, the classes picked, a preview of two of them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ConfigError
from bertsmith.core.log import say
from bertsmith.core.printable import fitted, printable
from bertsmith.tasks.config import Reading
from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.table import TASKS
from bertsmith.tasks.task import Task
from bertsmith.text.config import Columns
from bertsmith.text.examples.detection import recognise

# a pair of texts has a class as a single text has
_SAME = {"pair": "classify"}


def task_for(file: Path, name: str | None, reading: Reading) -> tuple[Task[Any], str]:
    """Return the task of a name, or that which a file looks to be for, and why ("" if named).

    Raises `ConfigError` for an unknown name, `ExampleError` for a file of no known task.
    """
    if name is not None:
        return task_named(_SAME.get(name, name)), ""
    result = recognise(file, reading.columns, reading.tags)
    task = task_named(result.glue or _SAME.get(result.task, result.task))
    return task, f"task: {result.task} ({result.reason}); --task names another"


def task_named(name: str) -> Task[Any]:
    """Return a task by name, those of GLUE too; raises `ConfigError` for an unknown name."""
    if name in TASKS:
        return TASKS[name]
    if name not in GLUE:
        raise ConfigError(f"there is no task {name!r}", remedy=f"the tasks are: {', '.join(TASKS)}")
    return GLUE[name]


def pick_classes(
    task: Task[Any], rows: Sequence[Any], columns: Columns, known: Sequence[str] = ()
) -> Sequence[Any]:
    """Return the rows of the classes that the columns name, or of all but those they exclude.

    Raises `ConfigError` for a name that neither the rows nor the `known` classes have, and if no
    row is left.
    """
    named = (*columns.classes, *columns.exclude)
    if not named:
        return rows

    def wanted(label: str) -> bool:
        return label not in columns.exclude and (not columns.classes or label in columns.classes)

    if task.labels.picked is None:
        raise ConfigError(
            f"{task.name} has no classes to pick from", remedy="leave out --classes and --exclude"
        )
    picked = task.labels.picked(rows, wanted)
    present = dict.fromkeys(label for row in rows for label in task.labels.of_row(row))
    for name in named:
        if name not in present and name not in known:
            available = ", ".join(sorted({*present, *known})[:30])
            raise ConfigError(f"there is no class {name!r}", remedy=f"the classes are: {available}")
    if not picked:
        raise ConfigError(
            "no example of the chosen classes is left",
            where=rows[0].source,
            remedy="change --classes or --exclude",
        )
    return picked


ROWS = 2
_MAX_LENGTH = 600


def print_rows(task: Task[Any], rows: Sequence[Any], file: Path, reading: Reading) -> None:
    """Print how a file was read, and two of its rows part by part."""
    width = shutil.get_terminal_size().columns
    for line in preview(task, rows, task.reader.layout(file, reading), file, width):
        say(line)


def preview(task: Task[Any], rows: Sequence[Any], layout: str, file: Path, width: int) -> list[str]:
    """Return lines of at most `width` columns: how a file was read, and two rows of it.

    The second row is the first one with a different label, if there is one.
    """
    truth = task.present.truth(rows[0])
    different = [row for row in rows[1:] if task.present.truth(row) != truth][:1] or list(
        rows[1:ROWS]
    )
    shown = [rows[0], *different]
    parts = [task.present.labelled_parts(row) for row in shown]
    names = max(len(name) for texts in parts for name in texts)
    lines = [f"{printable(file.name)}: {printable(layout or task.unit, _MAX_LENGTH)}"]
    for row, texts in zip(shown, parts, strict=True):
        location = f"line {row.line}"
        for name, text in texts.items():
            beginning = f"  {location:<11} {name:<{names}}  "
            lines.append(beginning + fitted(text, max(width - len(beginning), 20)))
            location = ""
    return lines
