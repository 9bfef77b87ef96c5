"""Any number of classes a text, or a pair of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ExampleError
from bertsmith.engine.answers import label_probabilities
from bertsmith.evaluation.metrics import exact_match, f1_of_counts, multi_label_f1
from bertsmith.evaluation.significance import Statistic, mean_of
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.tasks import MultiLabel
from bertsmith.tasks.config import LabelLoss, Reading
from bertsmith.tasks.labels import check_labels, check_texts, count_labels, order_labels
from bertsmith.tasks.task import (
    UNTUNED,
    Answers,
    Brief,
    Evidence,
    Labelling,
    Labels,
    Learning,
    Measuring,
    Presentation,
    Record,
    Right,
    Scoring,
    Task,
    Tuned,
)
from bertsmith.tasks.whole_texts import (
    check_rows,
    describe_texts,
    encode_texts,
    same_texts,
    shared_text,
    text_inputs,
    text_reader,
)
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.label_lists import label_separator

THRESHOLD = 0.5
"""The probability above which a label is predicted."""


def labels_of(row: Example) -> Labels:
    """Return the labels of a row."""
    return row.labels or ()


def flags_of(rows: Sequence[Example], labels: Labels) -> NDArray[np.bool_]:
    """Return whether each row has each label, (rows, labels)."""
    number = {label: index for index, label in enumerate(labels)}
    flags = np.zeros((len(rows), len(labels)), bool)
    for place, row in enumerate(rows):
        flags[place, [number[label] for label in labels_of(row)]] = True
    return flags


# reading


def _resolve_reading(file: Path, reading: Reading) -> Reading:
    """Return the reading with what stands between labels decided."""
    separator = label_separator(file, reading.columns)
    return reading.with_changes(columns=replace(reading.columns, label_separator=separator))


def _layout(file: Path, reading: Reading) -> str:
    """Return the columns, and what stands between labels if that is a comma or semicolon."""
    separator = reading.columns.label_separator
    separator_note = "" if separator in ("auto", "|") else f", labels between {separator!r}"
    return describe_texts("classes", file, reading) + separator_note


# labels


def _names(rows: Sequence[Example], known: Sequence[str]) -> Labels:
    """Return all labels that any text has."""
    labels = order_labels((label for row in rows for label in labels_of(row)), known)
    where = rows[0].source
    if not labels:
        remedy = "name the label's column with --label-column"
        raise ExampleError("no example has a label", where=where, remedy=remedy)
    if len({frozenset(labels_of(row)) for row in rows}) == 1:
        problem = f"every example has the same labels: {', '.join(labels[:10])}"
        remedy = "give examples without them too, or name the label's column with --label-column"
        raise ExampleError(problem, where=where, remedy=remedy)
    check_labels([label for row in rows for label in labels_of(row)], where)
    check_texts(rows, labels)
    return labels


def _picked(rows: Sequence[Example], wanted: Callable[[str], bool]) -> list[Example]:
    """Return all rows, each with those of its labels that are wanted."""
    return [replace(row, labels=tuple(filter(wanted, labels_of(row)))) for row in rows]


def _stratum(row: Example) -> str:
    """Return whether a row has labels: those with and those without are split alike."""
    return str(bool(row.labels))


# answers


def _keys(labels: Labels, tuned: Tuned) -> tuple[str, ...]:
    """Return the keys of a record."""
    return ("labels", "probabilities")


def _record(answer: Any, labels: Labels, top: int, tuned: Tuned) -> Record:  # noqa: ANN401
    """Return the predicted labels, and the likeliest ones with their probabilities."""
    order = np.argsort(-answer, kind="stable").tolist()
    return {
        "labels": [labels[i] for i in order if answer[i] > THRESHOLD],
        "probabilities": {labels[i]: round(float(answer[i]), 6) for i in order[:top]},
    }


# learning


def _targets(rows: Sequence[Example], labels: Labels, encoded: EncodedExamples) -> EncodedExamples:
    """Return each unit with a row of 0 and 1."""
    return encoded.labelled("classify", flags_of(rows, labels).astype(np.float32))


def _objective(rows: Sequence[Example], labels: Labels, settings: LabelLoss) -> Objective:
    """Return binary cross-entropy; balanced, each label's rows with it weigh as those without."""
    weights: tuple[float, ...] = ()
    if settings.class_weights == "balanced":
        frequencies = flags_of(rows, labels).mean(0)
        # a label that none has, or all have, as if one row were otherwise
        smallest = 1 / len(rows)
        weights = tuple(
            (np.maximum(1 - frequencies, smallest) / np.maximum(frequencies, smallest)).tolist()
        )
    term = MultiLabel(smoothing=settings.label_smoothing, weights=weights)
    return Objective(terms={"classify": term})


# measuring


def _evidence(rows: Sequence[Example], answers: Sequence[Any], labels: Labels) -> Evidence:
    """Return the true labels, one by one, and then the predicted ones."""
    predicted = np.stack([answer > THRESHOLD for answer in answers])
    return np.concatenate([flags_of(rows, labels), predicted], 1).astype(np.float64)


def _scoring(labels: Labels, tuned: Tuned) -> Scoring:
    """Return F1 over all labels of all texts, the mean of the labels' F1, and rows all right."""
    return {
        "micro_f1": lambda evidence: multi_label_f1(*_flags(evidence), average="micro"),
        "macro_f1": lambda evidence: multi_label_f1(*_flags(evidence), average="macro"),
        "exact_match": lambda evidence: exact_match(*_flags(evidence)),
    }


def _flags(evidence: Evidence) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the true and the predicted labels, (rows, labels) each."""
    half = evidence.shape[1] // 2
    return evidence[:, :half] > 0, evidence[:, half:] > 0


def _statistic(evidence: Evidence, name: str) -> Statistic:
    """Return a score of drawn rows, from sums of rows: these have thousands of labels."""
    if name == "exact_match":
        return mean_of(_right(evidence, UNTUNED).astype(np.float64))
    true, predicted = _flags(evidence)
    both, seen = true & predicted, true.astype(np.int8) + predicted
    if name == "micro_f1":
        row_both, row_seen = both.sum(1), seen.sum(1, dtype=np.int64)
        return lambda drawn: f1_of_counts(row_both[drawn].sum(), row_seen[drawn].sum())
    # whole numbers, which float32 adds up exactly
    label_both, label_seen = both.astype(np.float32), seen.astype(np.float32)

    def macro_f1(drawn: NDArray[np.int64]) -> float:
        times = np.bincount(drawn, minlength=len(evidence)).astype(np.float32)
        return f1_of_counts(
            (times @ label_both).astype(np.int64), (times @ label_seen).astype(np.int64)
        )

    return macro_f1


def _right(evidence: Evidence, tuned: Tuned) -> Right:
    """Return the rows with all labels right."""
    half = evidence.shape[1] // 2
    return (evidence[:, :half] == evidence[:, half:]).all(1)  # type: ignore[no-any-return]


def _units(evidence: Evidence, name: str) -> Right | None:
    """Return the rows, those with a true or predicted label for F1 over all labels."""
    if name == "macro_f1":
        return None
    rows: Right = np.any(evidence, axis=1)
    return rows if name == "micro_f1" else np.ones_like(rows)


def _constant(rows: Sequence[Example], answers: Sequence[Any]) -> bool:
    """Return whether the same labels are predicted for all rows."""
    return len({tuple((answer > THRESHOLD).tolist()) for answer in answers}) == 1


# presentation


def _lines(row: Example, record: Record, labels: Labels, brief: Brief) -> Iterator[str]:
    """Yield labels, text."""
    yield f"{_prediction(record)}  {brief(row.text)}"


def _truth(row: Example) -> str:
    return ", ".join(labels_of(row)) or "-"


def _prediction(record: Record) -> str:
    return ", ".join(record["labels"]) or "-"


def _describe(rows: Sequence[Example], labels: Labels) -> str:
    counts = count_labels((label for row in rows for label in labels_of(row)), labels)
    none = sum(not labels_of(row) for row in rows)
    return counts + (f"; {none:,} without any" if none else "")


MULTI_LABEL = Task(
    name="multi-label",
    title="Multi-label classification",
    head="classes",
    reader=replace(text_reader("classes"), resolve=_resolve_reading, layout=_layout),
    labels=Labelling(
        names=_names, of_row=labels_of, check=partial(check_rows, labels_of), picked=_picked
    ),
    identity=same_texts,
    clusters=shared_text,
    stratum=_stratum,
    answers=Answers(encode=encode_texts, outputs=label_probabilities, record=_record, keys=_keys),
    learning=Learning(targets=_targets, objective=_objective, weighs=True),
    measuring=Measuring(
        evidence=_evidence,
        scoring=_scoring,
        statistic=_statistic,
        right=_right,
        units=_units,
        constant=_constant,
    ),
    present=Presentation(
        lines=_lines, inputs=text_inputs, truth=_truth, prediction=_prediction, describe=_describe
    ),
)
"""Answers are the probabilities of the labels."""
