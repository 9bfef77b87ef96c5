"""The table of tasks by name, and the task of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertsmith.core.lazy import LazyTable
from bertsmith.network.config import ModelConfig, Predicts
from bertsmith.tasks.task import Task

HEADS: Mapping[str, Predicts] = {
    "classify": "class",
    "multi-label": "classes",
    "regression": "number",
    "choice": "choice",
    "tag": "tags",
    "span": "span",
    "rank": "number",
}
"""The heads of tasks by name."""


def _task(name: str) -> Task[Any]:
    match name:
        case "classify":
            from bertsmith.tasks.classify import CLASSIFY

            return CLASSIFY
        case "multi-label":
            from bertsmith.tasks.multi_label import MULTI_LABEL

            return MULTI_LABEL
        case "regression":
            from bertsmith.tasks.regression import REGRESSION

            return REGRESSION
        case "choice":
            from bertsmith.tasks.choice import CHOICE

            return CHOICE
        case "tag":
            from bertsmith.tasks.tag import TAG

            return TAG
        case "span":
            from bertsmith.tasks.span import SPAN

            return SPAN
        case "rank":
            from bertsmith.tasks.rank import RANK

            return RANK
    raise AssertionError(name)


TASKS: Mapping[str, Task[Any]] = LazyTable(HEADS, _task)
"""Tasks by name."""


def task_of(config: ModelConfig) -> Task[Any]:
    """Return the task that a model's head is for, the one with just these labels if there is."""
    tasks = [TASKS[name] for name, head in HEADS.items() if head == config.predicts]
    fixed = (task for task in tasks if task.labels.fixed and task.labels.fixed == config.labels)
    return next(fixed, tasks[0])
