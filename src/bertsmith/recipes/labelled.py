"""Labelled rows for fine-tuning: read, checked, split into train and dev."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from bertsmith.batches.randomness import Purpose, permuted, stream
from bertsmith.errors import ExampleError
from bertsmith.recipes.classes import pick_classes
from bertsmith.recipes.preview import tell_rows
from bertsmith.recipes.reading import Reading
from bertsmith.recipes.tasks.task import Row, Task

R = TypeVar("R", bound=Row)


@dataclass(frozen=True, kw_only=True)
class LabelledData(Generic[R]):
    """Rows to train on and to measure with, and the names of the outputs in the model's order."""

    task: Task[R]
    labels: tuple[str, ...]
    train: Sequence[R]
    dev: Sequence[R]
    dev_is_cut: bool
    """Whether dev was cut from the training file."""


def read_labelled(
    task: Task[Any],
    train: Path,
    dev: Path | None,
    reading: Reading,
    *,
    known_labels: Sequence[str],
    dev_share: float,
    seed: int,
) -> LabelledData[Any]:
    """Read and check the rows; without a dev file, hold out a share of the training file.

    Raises `ExampleError`, with file and line, for anything that cannot be learned from.
    """
    reading = task.settled(train, reading)
    rows = list(task.read(train, reading, labelled=True))
    every = {label for row in rows for label in task.labels_of(row)}
    rows = list(pick_classes(task, rows, reading.columns))
    tell_rows(task, rows, train, reading)
    labels = task.labels(rows, known_labels)
    if dev is None:
        kept, held_out = split(task, rows, dev_share, seed)
        task.check(kept, held_out, labels)
        return LabelledData(task=task, labels=labels, train=kept, dev=held_out, dev_is_cut=True)
    measured = list(task.read(dev, reading, labelled=True))
    measured = list(pick_classes(task, measured, reading.columns, known=tuple(every)))
    task.check(rows, measured, labels)
    return LabelledData(task=task, labels=labels, train=rows, dev=measured, dev_is_cut=False)


def split(task: Task[R], rows: Sequence[R], share: float, seed: int) -> tuple[list[R], list[R]]:
    """Hold out a share of each stratum, the same for the same seed; both parts keep their order.

    Rows of one identity stay on one side, and no stratum is held out whole. Where all that stay
    together are more than the share, the fewest of them are held out.
    """
    strata: dict[str, dict[Hashable, list[int]]] = {}
    stratum_of: dict[Hashable, str] = {}
    for index, row in enumerate(rows):
        identity = task.identity(row)
        stratum = stratum_of.setdefault(identity, task.stratum(row))
        strata.setdefault(stratum, {}).setdefault(identity, []).append(index)
    wanted = max(1, round(share * len(rows)))
    held_out: set[int] = set()
    passed = 0
    for number, stratum in enumerate(sorted(strata)):
        groups = list(strata[stratum].values())
        passed += sum(map(len, groups))
        # of the strata so far together, so that what rounding takes from one the next gets
        goal = math.floor(wanted * passed / len(rows) + 0.5)
        key = stream(Purpose.DEV_SPLIT, seed, number)
        order = permuted(np.arange(len(groups)), len(groups), key)
        for group in order[:-1]:
            if len(held_out) + len(groups[group]) <= goal:
                held_out.update(groups[group])
    if not held_out:
        several = [list(groups.values()) for groups in strata.values() if len(groups) > 1]
        fewest: list[int] = min(chain(*several), key=len, default=[])
        held_out.update(fewest)
    if not held_out:
        raise ExampleError(
            f"has too few {task.unit} ({len(rows)}) to hold some out",
            where=rows[0].source,
            remedy="give more, or others to measure with by --dev",
        )
    kept = [row for index, row in enumerate(rows) if index not in held_out]
    return kept, [rows[index] for index in sorted(held_out)]


def overlap(data: LabelledData[Any]) -> int:
    """How many dev rows have a text that is also in train."""
    known = {data.task.identity(row) for row in data.train}
    return sum(data.task.identity(row) in known for row in data.dev)
