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
from bertsmith.network.config import Preprocessing
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.inputs import MOST, LabelledData, Prepared
from bertsmith.recipes.predict.rows import asked_of_task, reading_as_trained
from bertsmith.tasks.answering import TaskAnswering, task_predictor
from bertsmith.tasks.config import Reading
from bertsmith.text.config import USUAL, Columns
from bertsmith.text.examples.example import Example, Kind, label_of
from bertsmith.text.opening import kind_of
from bertsmith.text.tables import TABLES

# the answers of a record that are labels, by the head that gives them
_NAMES = {"class": "label", "classes": "labels", "number": "number"}


def read_unlabelled(file: Path, data: LabelledData[Any], reading: Reading) -> list[Example]:
    """Return the rows of a file that are neither blank nor labelled already; labels are not read.

    The file, or folder, is read as `predict` does after a training with `reading`: a table with the
    columns of texts that were named there, if it has them, else by their usual names. Raises
    `ConfigError` for tasks that are not about whole texts, and `ExampleError`.
    """
    if data.task.head not in _NAMES or data.task.name == "rank":
        raise ConfigError(
            "--unlabelled is for classes and numbers of whole texts and pairs",
            remedy="leave it out",
        )
    if not file.exists():
        raise ExampleError("no such file or folder", where=file)
    pairs = data.train[0].text_pair is not None
    asked = asked_of_task(data.task, str(file), _texts_alone(file, reading), pairs=pairs)
    rows: list[Example] = [each.row for each in asked if each.row is not None]
    known = {data.task.identity(row) for row in (*data.train, *data.dev)}
    kept = [row for row in rows if data.task.identity(row) not in known]
    if not kept:
        raise ExampleError(
            "has no texts that are not among the labelled ones",
            where=file,
            remedy="name another file",
        )
    left_out = len(rows) - len(kept)
    more = f"; {left_out:,} left out that are among the labelled ones" if left_out else ""
    say(f"unlabelled: {counted(len(kept), 'text')} of {file}{more}")
    return kept


def _texts_alone(file: Path, reading: Reading) -> Reading:
    """Return how texts without labels are read, bad rows counted with those of the labelled."""
    named = reading.columns
    header = named.header if kind_of(file) in TABLES else USUAL.header
    trained = Preprocessing(longest=MOST, text_column=named.text, text_pair_column=named.text_pair)
    others = reading.settled(columns=Columns(encoding=named.encoding, header=header))
    return reading_as_trained(others, trained, str(file), labelled=False)


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
