"""A number a text, or a pair of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ExampleError
from bertsmith.engine.answers import text_outputs
from bertsmith.engine.predictor import Outputs
from bertsmith.evaluation.metrics import pearson, spearman
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.tasks import Regress
from bertsmith.tasks.config import LabelLoss
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
    Scores,
    Task,
    Tuned,
)
from bertsmith.tasks.whole_texts import (
    check_rows,
    encode_texts,
    same_text,
    text_inputs,
    text_reader,
)
from bertsmith.text.examples.example import Example

NUMBER = ("number",)


def numbers_of(rows: Sequence[Example]) -> NDArray[np.float64]:
    """Return the numbers of rows, (rows,)."""
    return np.array([row.number for row in rows], np.float64)


def number_truth(row: Example) -> str:
    """Return the number of a row."""
    return f"{row.number:g}"


def decode_number(row: Example, sidecar: object, outputs: Outputs, labels: Labels) -> float:
    """Return the only output for a row."""
    return float(outputs[0][0])


def _names(rows: Sequence[Example], known: Sequence[str]) -> Labels:
    """Return the number's name; raises `ExampleError` where all numbers are the same."""
    if len({row.number for row in rows}) < 2:
        raise ExampleError(
            f"has one number only, {rows[0].number}",
            where=rows[0].source,
            remedy="give examples of different numbers, or name the label's column",
        )
    return NUMBER


def _record(answer: Any, labels: Labels, top: int, tuned: Tuned) -> Record:  # noqa: ANN401
    return {"number": round(float(answer), 6)}


# learning


def _targets(rows: Sequence[Example], labels: Labels, encoded: EncodedExamples) -> EncodedExamples:
    return encoded.labelled("regress", numbers_of(rows).astype(np.float32))


def _objective(rows: Sequence[Example], labels: Labels, settings: LabelLoss) -> Objective:
    """Return the squared error, in units of the numbers' spread."""
    mean, spread = _mean_and_spread(rows)
    return Objective(terms={"regress": Regress(mean=mean, spread=spread)})


@torch.no_grad()
def _finish(model: Model, rows: Sequence[Example]) -> None:
    """Scale the head's last layer so that it gives the numbers themselves."""
    mean, spread = _mean_and_spread(rows)
    model.get_parameter("heads.classify.weight").mul_(spread)
    model.get_parameter("heads.classify.bias").mul_(spread).add_(mean)


def _mean_and_spread(rows: Sequence[Example]) -> tuple[float, float]:
    numbers = numbers_of(rows)
    return float(numbers.mean()), float(numbers.std()) or 1.0


# measuring


def _evidence(rows: Sequence[Example], answers: Sequence[Any], labels: Labels) -> Evidence:
    """Return the true and the predicted numbers, (rows, 2)."""
    return np.stack([numbers_of(rows), np.array(answers, np.float64)], 1)


def _scores(evidence: Evidence, labels: Labels, tuned: Tuned) -> Scores:
    """Return Pearson's and Spearman's correlation, 0 where either side is constant."""
    true, predicted = evidence.T
    scores = {"pearson": pearson(true, predicted), "spearman": spearman(true, predicted)}
    return {name: value if np.isfinite(value) else 0.0 for name, value in scores.items()}


def _constant(answers: Sequence[Any]) -> bool:
    """Return whether all numbers are the same up to a ten-thousandth."""
    return len(answers) > 1 and bool(np.ptp(answers) <= 1e-4 * np.abs(answers).max())


# presentation


def _lines(row: Example, record: Record, labels: Labels, brief: Brief) -> Iterator[str]:
    """Yield number, text."""
    yield f"{record['number']:9.4g}  {brief(row.text)}"


def _prediction(record: Record) -> str:
    return f"{record['number']:.4g}"


def _describe(rows: Sequence[Example], labels: Labels) -> str:
    """Return the range of the numbers."""
    numbers = numbers_of(rows)
    return f"{numbers.min():g} to {numbers.max():g}, on average {numbers.mean():.3g}"


REGRESSION = Task(
    name="regression",
    title="Regression",
    head="number",
    reader=text_reader("number"),
    labels=Labelling(names=_names, fixed=NUMBER, check=partial(check_rows, None)),
    identity=same_text,
    answers=Answers(
        encode=encode_texts, outputs=text_outputs, decode=decode_number, record=_record
    ),
    learning=Learning(targets=_targets, objective=_objective, finish=_finish),
    measuring=Measuring(evidence=_evidence, scores=_scores, constant=_constant),
    present=Presentation(
        lines=_lines,
        inputs=text_inputs,
        truth=number_truth,
        prediction=_prediction,
        describe=_describe,
    ),
)
"""Answers are numbers."""
