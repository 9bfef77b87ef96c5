"""Labelled rows for fine-tuning: reading, checking, splitting into train and dev."""

from __future__ import annotations

import math
import shutil
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.log import say
from bertsmith.core.printable import printable
from bertsmith.core.streams import Purpose, permuted, stream
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.task import Row, Task
from bertsmith.text.examples.columns import Columns


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

    kept = task.picked(rows, wanted)
    present = dict.fromkeys(label for row in rows for label in task.labels_of(row))
    for name in named:
        if name not in present and name not in known:
            there = ", ".join(sorted({*present, *known})[:30])
            raise ConfigError(f"there is no class {name!r}", remedy=f"there are: {there}")
    if not kept:
        raise ConfigError(
            "no example of the chosen classes is left",
            where=rows[0].source,
            remedy="change --classes or --exclude",
        )
    return kept


ROWS = 2
_LONGEST = 600


def tell_rows(task: Task[Any], rows: Sequence[Any], file: Path, reading: Reading) -> None:
    """Print how a file was read, and two of its rows part by part."""
    for line in preview(task, rows, task.layout(file, reading), file, _width()):
        say(line)


def preview(task: Task[Any], rows: Sequence[Any], layout: str, file: Path, width: int) -> list[str]:
    """Return lines of at most `width` characters: how a file was read, and two rows of it.

    The second row is the first one with a different label, if there is one.
    """
    truth = task.truth(rows[0])
    other = [row for row in rows[1:] if task.truth(row) != truth][:1] or list(rows[1:ROWS])
    shown = [rows[0], *other]
    parts = [task.parts(row) for row in shown]
    names = max(len(name) for texts in parts for name in texts)
    lines = [f"{printable(file.name)}: {printable(layout or task.unit, _LONGEST)}"]
    for row, texts in zip(shown, parts, strict=True):
        place = f"line {row.line}"
        for name, text in texts.items():
            beginning = f"  {place:<11} {name:<{names}}  "
            lines.append(beginning + printable(text, max(width - len(beginning), 20)))
            place = ""
    return lines


def _width() -> int:
    return shutil.get_terminal_size().columns


R = TypeVar("R", bound=Row)


@dataclass(frozen=True, kw_only=True)
class LabelledData(Generic[R]):
    """Training and dev rows, and the names of the outputs in the model's order."""

    task: Task[R]
    labels: tuple[str, ...]
    train: Sequence[R]
    dev: Sequence[R]
    dev_is_cut: bool
    """True if dev was split off the training file."""


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

    Raises `ExampleError`, with file and line, for rows that cannot be learned from.
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
    """Hold out a share of each stratum, determined by the seed; both parts keep their order.

    Rows of one identity stay on one side, and no stratum is held out completely. If every such
    group is larger than the share, the smallest one is held out.
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
        # cumulative over the strata, so that what rounding takes from one goes to the next
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
    """Return the number of dev rows with a text that is also in train."""
    known = {data.task.identity(row) for row in data.train}
    return sum(data.task.identity(row) in known for row in data.dev)
