"""Which task a file is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertsmith.recipes.reading import Reading
from bertsmith.recipes.tasks.table import task_named
from bertsmith.recipes.tasks.task import Task
from bertsmith.text.recognising import recognise

# a pair of texts has a class as a single text has
_SAME = {"pair": "classify"}


def task_for(file: Path, name: str | None, reading: Reading) -> tuple[Task[Any], str]:
    """The task of that name, or the one that a file looks to be for, and why, "" where it was said.

    Raises `ConfigError` for a name that there is not, `ExampleError` for a file that does not tell.
    """
    if name is not None:
        return task_named(_SAME.get(name, name)), ""
    found = recognise(file, reading.columns, reading.tags)
    task = task_named(found.glue or _SAME.get(found.task, found.task))
    return task, f"task: {found.task} ({found.reason}); --task names another"
