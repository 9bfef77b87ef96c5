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
from bertsmith.core.printable import rounded
from bertsmith.engine.answers import text_outputs
from bertsmith.engine.predictor import Outputs
from bertsmith.evaluation.metrics import Score, pearson, spearman
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
    Scoring,
    Task,
    Tuned,
    no_units,
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

NUMBER = ("number",)
# of float32, in the spread of the numbers that are learned
_MIN_STEPS = 4
# an answer may be several times as far from the mean as any of the numbers
_LARGEST = 1e37
# of the numbers that are shown with all figures before the point
_MAX_PLAIN_NUMBER = 1e15
# ranges of the middle half of the numbers between the median and numbers that may stand for none
_FAR = 20


def numbers_of(rows: Sequence[Example]) -> NDArray[np.float64]:
    """Return the numbers of rows, (rows,)."""
    return np.array([row.number for row in rows], np.float64)


def number_truth(row: Example) -> str:
    """Return the number of a row."""
    assert row.number is not None
    return _figures(row.number, 15)


def decode_number(row: Example, sidecar: object, outputs: Outputs, labels: Labels) -> float:
    """Return the only output for a row."""
    return float(outputs[0][0])


def _names(rows: Sequence[Example], known: Sequence[str]) -> Labels:
    """Return the number's name; raises `ExampleError` for numbers too much alike or too large."""
    if len({row.number for row in rows}) < 2:
        raise ExampleError(
            f"has one number only, {rows[0].number}",
            where=rows[0].source,
            remedy="give examples of different numbers, or another --label-column",
        )
    numbers = numbers_of(rows)
    if np.abs(numbers).max() > _LARGEST:
        raise ExampleError(
            f"has numbers of up to {np.abs(numbers).max():.3g}, and float32 ends at 3.4e38",
            where=rows[0].source,
            remedy=f"divide all of them by {np.abs(numbers).max():.0e}",
        )
    # a model answers in float32, whose numbers lie so far apart at this size
    step = float(np.spacing(np.abs(numbers).max().astype(np.float32)))
    if numbers.std() < _MIN_STEPS * step:
        low, high = (_figures(number, 15) for number in (numbers.min(), numbers.max()))
        raise ExampleError(
            f"has numbers that differ too little for their size, {low} to {high}",
            where=rows[0].source,
            remedy=f"subtract {low} from all of them: float32 has steps of {step:g} there",
        )
    return NUMBER


def _keys(labels: Labels, tuned: Tuned) -> tuple[str, ...]:
    """Return the keys of a record."""
    return ("number",)


def _record(answer: Any, labels: Labels, top: int, tuned: Tuned) -> Record:  # noqa: ANN401
    return {"number": rounded(float(answer))}


# learning


def _targets(rows: Sequence[Example], labels: Labels, encoded: EncodedExamples) -> EncodedExamples:
    return encoded.labelled("regress", numbers_of(rows))


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


def _scoring(labels: Labels, tuned: Tuned) -> Scoring:
    """Return Pearson's and Spearman's correlation, 0 where either side is constant."""
    return {"pearson": partial(_correlation, pearson), "spearman": partial(_correlation, spearman)}


def _correlation(correlation: Score, evidence: Evidence) -> float:
    value = correlation(*evidence.T)
    # of a constant alone: numbers that are not finite have no score
    return 0.0 if np.isnan(value) and np.isfinite(evidence).all() else value


def _defined(evidence: Evidence) -> bool:
    """Return whether neither side is constant."""
    return bool((np.ptp(evidence, 0) > 0).all())


def _constant(rows: Sequence[Example], answers: Sequence[Any]) -> bool:
    """Return whether all numbers are the same up to a ten-thousandth of the true ones' range.

    Where that is less than a step of float32, in which models answer, up to such a step.
    """
    predicted = np.array(answers, np.float64)
    step = np.spacing(np.abs(predicted).max().astype(np.float32))
    return bool(np.ptp(predicted) <= max(1e-4 * np.ptp(numbers_of(rows)), float(step)))


def _notes(evidence: Evidence, tuned: Tuned) -> list[str]:
    """Return a note that nothing was measured, if all true numbers are the same."""
    if np.ptp(evidence[:, 0]) > 0:
        return []
    return ["all numbers to be measured with are the same: a correlation is shown as 0 then"]


# presentation


def _lines(row: Example, record: Record, labels: Labels, brief: Brief) -> Iterator[str]:
    """Yield number, text."""
    yield f"{_figures(record['number'], 4):>9}  {brief(row.text)}"


def _prediction(record: Record) -> str:
    return _figures(record["number"], 4)


def _describe(rows: Sequence[Example], labels: Labels) -> str:
    """Return the range of the numbers, and how many are far from the others."""
    numbers = numbers_of(rows)
    low, high = (_figures(number, 6) for number in (numbers.min(), numbers.max()))
    content = f"{low} to {high}, on average {_figures(numbers.mean(), 3)}"
    if far := _far_numbers(numbers):
        are = "is" if len(far) == 1 else "are"
        content += f"; {len(far):,} {are} far from the others, such as {_figures(far[0], 6)}"
    return content


def _far_numbers(numbers: NDArray[np.float64]) -> list[float]:
    """Return the numbers that may stand for none, such as -999, the farthest first."""
    first, middle, third = np.quantile(numbers, [0.25, 0.5, 0.75])
    distances = np.abs(numbers - middle)
    far = distances > _FAR * (third - first)
    return list(numbers[far][np.argsort(-distances[far])]) if third > first else []


def _figures(number: float, significant: int) -> str:
    """Return a number with some significant figures, and all of those before the point."""
    in_full = 10.0**significant <= abs(number) < _MAX_PLAIN_NUMBER
    return f"{number:z.0f}" if in_full else f"{number:z.{significant}g}"


REGRESSION = Task(
    name="regression",
    title="Regression",
    head="number",
    reader=text_reader("number"),
    labels=Labelling(names=_names, fixed=NUMBER, check=partial(check_rows, None)),
    identity=same_texts,
    clusters=shared_text,
    answers=Answers(
        encode=encode_texts, outputs=text_outputs, decode=decode_number, record=_record, keys=_keys
    ),
    learning=Learning(targets=_targets, objective=_objective, finish=_finish),
    measuring=Measuring(
        evidence=_evidence,
        scoring=_scoring,
        defined=_defined,
        constant=_constant,
        units=no_units,
        notes=_notes,
    ),
    present=Presentation(
        lines=_lines,
        inputs=text_inputs,
        truth=number_truth,
        prediction=_prediction,
        describe=_describe,
    ),
)
"""Answers are numbers."""
