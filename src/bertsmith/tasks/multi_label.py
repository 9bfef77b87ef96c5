"""Any number of classes a text, or a pair of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ExampleError
from bertsmith.engine.answers import label_probabilities
from bertsmith.evaluation.metrics import exact_match, multi_label_f1
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.texts import MultiLabel as MultiLabelObjective
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.task import Evidence, Room, Scores
from bertsmith.tasks.weighing import LabelLoss
from bertsmith.tasks.whole_texts import (
    TextTask,
    check_labels,
    check_texts,
    count_labels,
    order_labels,
)
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.recognising import label_separator
from bertsmith.tokens.tokenizer import Tokenizer

_SAID = 0.5


@dataclass(frozen=True)
class MultiLabel(TextTask):
    """Answers are the probabilities of the labels; evidence what is true and what is said."""

    called: ClassVar = "multi-label"
    outputs: ClassVar = staticmethod(label_probabilities)
    predicts: ClassVar = "classes"
    title: ClassVar = "Multi-label classification"
    weighs: ClassVar = True
    kind: ClassVar = "classes"

    def settled(self, file: Path, reading: Reading) -> Reading:
        """Return the reading with what stands between labels decided."""
        separator = label_separator(file, reading.columns)
        return reading.settled(columns=replace(reading.columns, label_separator=separator))

    def layout(self, file: Path, reading: Reading) -> str:
        """Return the columns, and what stands between labels if that is a comma or semicolon."""
        separator = reading.columns.label_separator
        between = "" if separator in ("auto", "|") else f", labels between {separator!r}"
        return super().layout(file, reading) + between

    def labels(self, rows: Sequence[Example], known: Sequence[str]) -> tuple[str, ...]:
        """All labels that any text has, in the order that the model will keep."""
        labels = order_labels((label for row in rows for label in self.labels_of(row)), known)
        where = rows[0].source
        if not labels:
            raise ExampleError(
                "no example has a label", where=where, remedy="name the label's column"
            )
        if len({frozenset(self.labels_of(row)) for row in rows}) == 1:
            what = f"every example has the same labels: {', '.join(labels[:10])}"
            remedy = "give examples without them too, or name the label's column"
            raise ExampleError(what, where=where, remedy=remedy)
        check_labels([label for row in rows for label in self.labels_of(row)], where)
        check_texts(rows, labels)
        return labels

    def labels_of(self, row: Example) -> tuple[str, ...]:
        """Its labels."""
        return row.labels or ()

    def picked(self, rows: Sequence[Example], wanted: Callable[[str], bool]) -> list[Example]:
        """Return all rows, each with those of its labels that are wanted."""
        return [replace(row, labels=tuple(filter(wanted, row.labels or ()))) for row in rows]

    def stratum(self, row: Example) -> str:
        """The rows with labels and those without are split alike."""
        return str(bool(row.labels))

    def encode(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[Example],
        labels: tuple[str, ...],
        room: Room,
        *,
        labelled: bool,
    ) -> EncodedExamples:
        """A text a unit, its labels a row of 0 and 1."""
        encoded = self.encoded(tokenizer, rows, room)
        if not labelled:
            return encoded
        return encoded.labelled("classify", flags_of(rows, labels).astype(np.float32))

    def objective(
        self, rows: Sequence[Example], labels: tuple[str, ...], settings: LabelLoss
    ) -> Objective:
        """Binary cross-entropy; balanced, each label's rows with it weigh as those without."""
        weights: tuple[float, ...] = ()
        if settings.class_weights == "balanced":
            there = flags_of(rows, labels).mean(0)
            # a label that none has, or all have, as if one row were otherwise
            least = 1 / len(rows)
            weights = tuple((np.maximum(1 - there, least) / np.maximum(there, least)).tolist())
        term = MultiLabelObjective(smoothing=settings.smoothing, weights=weights)
        return Objective(terms={"classify": term})

    def evidence(
        self, rows: Sequence[Example], answers: Sequence[Any], labels: tuple[str, ...]
    ) -> Evidence:
        """Return the true labels, one by one, and then the predicted ones."""
        said = np.stack([answer > _SAID for answer in answers])
        return np.concatenate([flags_of(rows, labels), said], 1).astype(np.float64)

    def scores(self, evidence: Evidence, labels: tuple[str, ...]) -> Scores:
        """F1 over all labels of all texts, the mean of the labels' F1, and rows all right."""
        true, said = evidence[:, : len(labels)] > 0, evidence[:, len(labels) :] > 0
        return {
            "micro_f1": multi_label_f1(true, said, average="micro"),
            "macro_f1": multi_label_f1(true, said, average="macro"),
            "exact_match": exact_match(true, said),
        }

    def record(self, answer: Any, labels: tuple[str, ...], top: int) -> dict[str, Any]:  # noqa: ANN401
        """The labels said, and the likeliest ones with their probabilities."""
        order = np.argsort(-answer, kind="stable").tolist()
        return {
            "labels": [labels[i] for i in order if answer[i] > _SAID],
            "probabilities": {labels[i]: round(float(answer[i]), 6) for i in order[:top]},
        }

    def lines(
        self,
        row: Example,
        record: dict[str, Any],
        labels: tuple[str, ...],
        brief: Callable[[str], str],
    ) -> Iterator[str]:
        """Labels, text."""
        yield f"{', '.join(record['labels']) or '-'}  {brief(row.text)}"

    def truth(self, row: Example) -> str:
        """Its labels."""
        return ", ".join(row.labels or ()) or "-"

    def said(self, record: dict[str, Any]) -> str:
        """The labels said."""
        return ", ".join(record["labels"]) or "-"

    def right(self, evidence: Evidence) -> NDArray[np.bool_]:
        """Return the rows with all labels right."""
        half = evidence.shape[1] // 2
        return (evidence[:, :half] == evidence[:, half:]).all(1)  # type: ignore[no-any-return]

    def constant(self, answers: Sequence[Any]) -> bool:
        """Return whether the same labels are predicted for all rows."""
        return len({tuple((answer > _SAID).tolist()) for answer in answers}) == 1

    def describe(self, rows: Sequence[Example], labels: tuple[str, ...]) -> str:
        """The labels with their numbers of examples, the first ten."""
        return count_labels((label for row in rows for label in self.labels_of(row)), labels)


def flags_of(rows: Sequence[Example], labels: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return whether each row has each label, (rows, labels)."""
    number = {label: index for index, label in enumerate(labels)}
    flags = np.zeros((len(rows), len(labels)), bool)
    for place, row in enumerate(rows):
        flags[place, [number[label] for label in row.labels or ()]] = True
    return flags
