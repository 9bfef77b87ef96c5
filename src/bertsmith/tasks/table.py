"""The table of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertsmith.core.errors import ConfigError
from bertsmith.network.model import ModelConfig
from bertsmith.tasks.choice import Choice
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.multi_label import MultiLabel
from bertsmith.tasks.rank import RELEVANCE, Rank
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.regression import Regression
from bertsmith.tasks.span import Span
from bertsmith.tasks.tag import Tag
from bertsmith.tasks.task import Task
from bertsmith.text.examples.glue import TASKS as GLUE_TASKS
from bertsmith.text.examples.recognising import recognise

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


TASKS: dict[str, Task[Any]] = {
    task.name: task
    for task in (Classify(), MultiLabel(), Regression(), Choice(), Tag(), Span(), Rank())
}


GLUE: dict[str, Task[Any]] = {
    name: Classify(glue=task) if task.predicts == "class" else Regression(glue=task)
    for name, task in GLUE_TASKS.items()
}
"""The tasks of GLUE, which read their own files."""


def task_named(name: str) -> Task[Any]:
    """A task of the table; raises `ConfigError` for a name that is not in it."""
    if name not in TASKS | GLUE:
        raise ConfigError(f"there is no task {name!r}", remedy=f"there is: {', '.join(TASKS)}")
    return (TASKS | GLUE)[name]


def task_of(config: ModelConfig) -> Task[Any]:
    """The task that a model's head is for."""
    if config.predicts == "number" and config.labels == RELEVANCE:
        return TASKS["rank"]
    if config.no_answer is not None:
        return Span(no_answer=config.no_answer)
    if config.min_confidence is not None:
        chosen = Choice if config.predicts == "choice" else Classify
        return chosen(min_confidence=config.min_confidence)
    return next(task for task in TASKS.values() if task.predicts == config.predicts)
