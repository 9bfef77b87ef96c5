"""One class a text, or a pair of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ExampleError
from bertsmith.core.printable import display_width, padded
from bertsmith.engine.answers import class_probabilities
from bertsmith.evaluation.metrics import CLASS_SCORES
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.tasks import Classify
from bertsmith.tasks.confidence import (
    calibrate,
    choice_evidence,
    chosen_record,
    confidence_notes,
    record_keys,
    right_choices,
    tune_confidence,
)
from bertsmith.tasks.config import LabelLoss
from bertsmith.tasks.labels import (
    balanced_weights,
    check_labels,
    check_texts,
    count_labels,
    order_labels,
)
from bertsmith.tasks.task import (
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
    encode_texts,
    same_texts,
    shared_text,
    text_inputs,
    text_reader,
)
from bertsmith.text.examples.example import Example


def class_of(row: Example) -> str:
    """Return the class of a row."""
    return str(row.label)


def classes_of(rows: Sequence[Example], labels: Labels) -> NDArray[np.int64]:
    """Return the class numbers of rows, (rows,)."""
    number = {label: index for index, label in enumerate(labels)}
    return np.array([number[class_of(row)] for row in rows], np.int64)


# labels


def _names(rows: Sequence[Example], known: Sequence[str]) -> Labels:
    return checked_classes(rows, order_labels(map(class_of, rows), known))


def checked_classes(rows: Sequence[Example], labels: Labels) -> Labels:
    """Return the classes of rows; raises `ExampleError` for one alone, and for a bad label."""
    if len(labels) < 2:
        raise ExampleError(
            f"has one class only, {labels[0]!r}",
            where=rows[0].source,
            remedy="give examples of two classes or more, or another --label-column",
        )
    check_labels(list(map(class_of, rows)), rows[0].source)
    check_texts(rows, labels)
    return labels


def _labels_of(row: Example) -> Labels:
    return (class_of(row),)


def _as_labelled(rows: Sequence[Example], labels: Labels) -> Sequence[Example]:
    """Return rows with the names that `transformers` gives to numbers, where a model has no other.

    Its data sets have the numbers of classes alone.
    """
    names = {str(number): f"LABEL_{number}" for number in range(len(labels))}
    if labels != tuple(names.values()):
        return rows
    return [replace(row, label=names.get(class_of(row), row.label)) for row in rows]


def _picked(rows: Sequence[Example], wanted: Callable[[str], bool]) -> list[Example]:
    return [row for row in rows if wanted(class_of(row))]


# answers


def _keys(labels: Labels, tuned: Tuned) -> tuple[str, ...]:
    return record_keys("label", tuned)


def _record(answer: Any, labels: Labels, top: int, tuned: Tuned) -> Record:  # noqa: ANN401
    """Return the likeliest class, and the likeliest ones with their probabilities."""
    order = np.argsort(-answer, kind="stable")[:top].tolist()
    likeliest = {labels[i]: round(float(answer[i]), 6) for i in order}
    return {**chosen_record("label", answer, labels, tuned), "probabilities": likeliest}


# learning


def _targets(rows: Sequence[Example], labels: Labels, encoded: EncodedExamples) -> EncodedExamples:
    return encoded.labelled("classify", classes_of(rows, labels))


def _objective(rows: Sequence[Example], labels: Labels, settings: LabelLoss) -> Objective:
    """Return cross-entropy."""
    balanced = settings.class_weights == "balanced"
    weights = balanced_weights(classes_of(rows, labels), len(labels)) if balanced else ()
    term = Classify(smoothing=settings.label_smoothing, weights=weights)
    return Objective(terms={"classify": term})


# measuring


def _evidence(rows: Sequence[Example], answers: Sequence[Any], labels: Labels) -> Evidence:
    return choice_evidence(classes_of(rows, labels), answers)


def _score(name: str, evidence: Evidence) -> float:
    true, predicted = evidence[:, :2].astype(np.int64).T
    return CLASS_SCORES[name](true, predicted)


def _scoring(names: tuple[str, ...], labels: Labels, tuned: Tuned) -> Scoring:
    return {name: partial(_score, name) for name in names}


def _units(evidence: Evidence, name: str) -> Right | None:
    """Return the rows of the accuracy, or of the F1 of class 1; other scores are no shares."""
    if name == "accuracy":
        return np.ones(len(evidence), bool)
    return (evidence[:, :2] == 1).any(1) if name == "f1" else None


def _constant(rows: Sequence[Example], answers: Sequence[Any]) -> bool:
    """Return whether one class is predicted throughout."""
    return len({int(answer.argmax()) for answer in answers}) == 1


def _commonest_class(
    names: tuple[str, ...], train: Sequence[Example], dev: Sequence[Example], labels: Labels
) -> tuple[str, float]:
    true = classes_of(dev, labels)
    predicted = np.full_like(true, np.bincount(classes_of(train, labels)).argmax())
    evidence = np.stack([true, predicted], 1).astype(np.float64)
    return "always predicting the most frequent class", _score(names[0], evidence)


def class_measuring(names: tuple[str, ...]) -> Measuring[Example]:
    """Return the measuring of answers by the scores of these names."""
    return Measuring(
        evidence=_evidence,
        scoring=partial(_scoring, names),
        constant=_constant,
        tune=tune_confidence,
        right=right_choices,
        units=_units,
        notes=partial(confidence_notes, "examples"),
        calibrate=calibrate,
        majority_baseline=partial(_commonest_class, names),
    )


# presentation


@lru_cache(maxsize=1)
def _width(labels: Labels) -> int:
    """Return the columns of the widest label."""
    return max(map(display_width, labels))


def _lines(row: Example, record: Record, labels: Labels, brief: Brief) -> Iterator[str]:
    """Yield class, probability, text."""
    width = _width(labels)
    text = row.text if row.text_pair is None else f"{row.text} | {row.text_pair}"
    among = (
        f"  {{{', '.join(result)}}}" if (result := record.get("prediction_set")) is not None else ""
    )
    yield f"{padded(_prediction(record), width)}  {record['probability']:.3f}{among}  {brief(text)}"


def _prediction(record: Record) -> str:
    return "-" if record["label"] is None else str(record["label"])


def _describe(rows: Sequence[Example], labels: Labels) -> str:
    return count_labels(map(class_of, rows), labels)


CLASSIFY = Task(
    name="classify",
    title="Classification",
    head="class",
    reader=text_reader("class"),
    labels=Labelling(
        names=_names,
        of_row=_labels_of,
        check=partial(check_rows, _labels_of),
        as_labelled=_as_labelled,
        picked=_picked,
    ),
    identity=same_texts,
    clusters=shared_text,
    stratum=class_of,
    answers=Answers(
        encode=encode_texts,
        outputs=class_probabilities,
        record=_record,
        keys=_keys,
        thresholds=("min_confidence",),
    ),
    learning=Learning(targets=_targets, objective=_objective, weighs=True),
    measuring=class_measuring(("accuracy", "macro_f1")),
    present=Presentation(
        lines=_lines, inputs=text_inputs, truth=class_of, prediction=_prediction, describe=_describe
    ),
)
"""Answers are the probabilities of the classes."""
