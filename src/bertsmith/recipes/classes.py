"""Classes picked or left out of labelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertsmith.errors import ConfigError
from bertsmith.recipes.tasks.task import Task
from bertsmith.text.columns import Columns


def pick_classes(
    task: Task[Any], rows: Sequence[Any], columns: Columns, known: Sequence[str] = ()
) -> Sequence[Any]:
    """Return the rows of the classes that the columns name, or of all but those they exclude.

    Raises `ConfigError` for a name that neither the rows nor `known` classes have, and where no
    row is left.
    """
    named = (*columns.classes, *columns.exclude)
    if not named:
        return rows

    def wanted(label: str) -> bool:
        return label not in columns.exclude and (not columns.classes or label in columns.classes)

    kept = task.picked(rows, wanted)
    found = dict.fromkeys(label for row in rows for label in task.labels_of(row))
    for name in named:
        if name not in found and name not in known:
            there = ", ".join(sorted({*found, *known})[:30])
            raise ConfigError(f"there is no class {name!r}", remedy=f"there are: {there}")
    if not kept:
        raise ConfigError(
            "no example is left of the classes picked",
            where=rows[0].source,
            remedy="change --classes or --exclude",
        )
    return kept
