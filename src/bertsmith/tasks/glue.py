"""The tasks of GLUE: classes or a number, with their files, labels, scores and lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ExampleError
from bertsmith.core.lazy import LazyTable
from bertsmith.tasks.classify import CLASSIFY, checked_classes, class_measuring
from bertsmith.tasks.config import Reading
from bertsmith.tasks.regression import REGRESSION
from bertsmith.tasks.task import Labels, Reader, Task
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.glue import TASKS, GlueTask, read_glue, task_of


def _classification(glue: GlueTask) -> Task[Example]:
    """Return a task with classes, which has its own order of labels and scores."""
    return replace(
        _variant(CLASSIFY, glue),
        labels=replace(CLASSIFY.labels, names=partial(_names, glue.labels), picked=None),
        measuring=class_measuring(glue.metrics),
    )


def _names(labels: Labels, rows: Sequence[Example], known: Sequence[str]) -> Labels:
    # F1 is that of the second class, whatever order another model has them in
    return checked_classes(rows, labels)


def _variant(task: Task[Example], glue: GlueTask) -> Task[Example]:
    """Return a task that reads the files of a GLUE task, at the length of its published results."""
    read = partial(_read, glue)
    layout = partial(_layout, glue)
    return replace(
        task,
        name=glue.name,
        reader=replace(
            task.reader,
            labelled=read,
            measured=None,
            unlabelled=read,
            layout=layout,
            unread_columns=Reader.unread_columns,
        ),
        learning=replace(task.learning, lengthens=False),
    )


def _read(task: GlueTask, file: Path, reading: Reading) -> Iterator[Example]:
    reading.columns.check_read(file, "GLUE's files")
    return read_glue(file, task, _split(file, task), bad=reading.bad_rows)


def _layout(task: GlueTask, file: Path, reading: Reading) -> str:
    return f"GLUE's {task.name}, {_split(file, task)}"


def _split(file: Path, glue: GlueTask) -> str:
    """Return the split that a file of a task holds, by its name."""
    result = task_of(file)
    if result is None or result[0] is not glue:
        raise ExampleError(
            f"is not a file of {glue.name}",
            where=file,
            remedy=f"name one in a folder called {glue.name}, as GLUE distributes it",
        )
    return result[1]


def _task(name: str) -> Task[Any]:
    glue = TASKS[name]
    return _classification(glue) if glue.labels else _variant(REGRESSION, glue)


GLUE: Mapping[str, Task[Any]] = LazyTable(TASKS, _task)
"""The tasks by name."""
