"""Texts without labels, which the teacher answers: a transfer set (Hinton et al. 2015, section 2).

A student learns the teacher's answers to them as it does those to labelled texts; where a method
also learns labels, the answer is the label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.log import progress, say
from bertsmith.core.printable import counted
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared
from bertsmith.recipes.predict.rows import asked_of_task
from bertsmith.tasks.answering import TaskAnswering, task_predictor
from bertsmith.tasks.config import Reading
from bertsmith.text.examples.example import Example, Kind, label_of

# the answers of a record that are labels, by the head that gives them
_NAMES = {"class": "label", "classes": "labels", "number": "number"}


def read_unlabelled(file: Path, data: LabelledData[Any], reading: Reading) -> list[Example]:
    """Return the rows of a file that are neither blank nor also in dev; labels are not read.

    The file, or folder, is read as `predict` does, with the columns of the labelled examples where
    it has them. Raises `ConfigError` for tasks that are not about whole texts, and `ExampleError`.
    """
    if data.task.head not in _NAMES or data.task.name == "rank":
        raise ConfigError(
            "--unlabelled is for classes and numbers of whole texts and pairs",
            remedy="leave it out",
        )
    pairs = data.train[0].text_pair is not None
    asked = asked_of_task(data.task, str(file), reading, pairs=pairs)
    rows: list[Example] = [each.row for each in asked if each.row is not None]
    known = {data.task.identity(row) for row in data.dev}
    kept = [row for row in rows if data.task.identity(row) not in known]
    if not kept:
        raise ExampleError(
            "has no texts that are not in the dev set", where=file, remedy="name another file"
        )
    left_out = len(rows) - len(kept)
    more = f"; {left_out:,} left out that are in the dev set" if left_out else ""
    say(f"unlabelled: {counted(len(kept), 'text')} of {file}{more}")
    return kept


@torch.no_grad()
def answered(teacher: Model, prepared: Prepared, rows: Sequence[Example]) -> list[Example]:
    """Return the rows with the teacher's answers as their labels."""
    predictor = task_predictor(prepared.task, teacher, prepared.tokenizer, prepared.room)
    answering, kind = predictor.answering, cast("Kind", prepared.task.head)
    assert isinstance(answering, TaskAnswering)
    found = []
    with progress("the teacher labels", len(rows), "texts") as bar:
        for row, answer in zip(rows, predictor(rows), strict=True):
            record = answering.record(answer)
            label, number, labels = label_of(kind, record[_NAMES[kind]])
            found.append(replace(row, label=label, number=number, labels=labels))
            bar.advance(1)
    return found
