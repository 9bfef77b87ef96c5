"""The table of tasks."""

from __future__ import annotations

from typing import Any

from bertsmith.errors import ConfigError
from bertsmith.models.model import ModelConfig
from bertsmith.recipes.tasks.choice import Choice
from bertsmith.recipes.tasks.classify import Classify
from bertsmith.recipes.tasks.multi_label import MultiLabel
from bertsmith.recipes.tasks.rank import RELEVANCE, Rank
from bertsmith.recipes.tasks.regression import Regression
from bertsmith.recipes.tasks.span import Span
from bertsmith.recipes.tasks.tag import Tag
from bertsmith.recipes.tasks.task import Task
from bertsmith.text.glue import TASKS as GLUE_TASKS

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
