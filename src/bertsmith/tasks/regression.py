"""A number a text, or a pair of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

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
from bertsmith.objectives.texts import Regress
from bertsmith.tasks.task import Evidence, Room, Scores
from bertsmith.tasks.weighing import LabelLoss
from bertsmith.tasks.whole_texts import TextTask
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

NUMBER = ("number",)


@dataclass(frozen=True)
class Regression(TextTask):
    """Answers are numbers; evidence the true one and the one said."""

    called: ClassVar = "regression"
    outputs: ClassVar = staticmethod(text_outputs)
    predicts: ClassVar = "number"
    title: ClassVar = "Regression"
    kind: ClassVar = "number"

    def labels(self, rows: Sequence[Example], known: Sequence[str]) -> tuple[str, ...]:
        """The number's name; raises `ExampleError` where all numbers are the same."""
        if len({row.number for row in rows}) < 2:
            raise ExampleError(
                f"has one number only, {rows[0].number}",
                where=rows[0].source,
                remedy="give examples of different numbers, or name the label's column",
            )
        return NUMBER

    def encode(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[Example],
        labels: tuple[str, ...],
        room: Room,
        *,
        labelled: bool,
    ) -> EncodedExamples:
        """A text a unit."""
        encoded = self.encoded(tokenizer, rows, room)
        if not labelled:
            return encoded
        return encoded.labelled("regress", numbers_of(rows).astype(np.float32))

    def objective(
        self, rows: Sequence[Example], labels: tuple[str, ...], settings: LabelLoss
    ) -> Objective:
        """The squared error, in units of the numbers' spread."""
        mean, spread = _mean_and_spread(rows)
        return Objective(terms={"regress": Regress(mean=mean, spread=spread)})

    @torch.no_grad()
    def finish(self, model: Model, rows: Sequence[Example]) -> None:
        """Let the head's last layer say the numbers themselves."""
        mean, spread = _mean_and_spread(rows)
        model.get_parameter("heads.classify.weight").mul_(spread)
        model.get_parameter("heads.classify.bias").mul_(spread).add_(mean)

    def decode(
        self,
        rows: Sequence[Example],
        encoded: EncodedExamples,
        outputs: Outputs,
        labels: tuple[str, ...],
    ) -> Sequence[Any]:
        """Return the number of each text."""
        return [float(output[0]) for output in outputs]

    def evidence(
        self, rows: Sequence[Example], answers: Sequence[Any], labels: tuple[str, ...]
    ) -> Evidence:
        """The true number, and the one said."""
        return np.stack([numbers_of(rows), np.array(answers, np.float64)], 1)

    def scores(self, evidence: Evidence, labels: tuple[str, ...]) -> Scores:
        """Pearson's and Spearman's correlation, 0 where either side is constant."""
        true, said = evidence.T
        found = {"pearson": pearson(true, said), "spearman": spearman(true, said)}
        return {name: value if np.isfinite(value) else 0.0 for name, value in found.items()}

    def record(self, answer: Any, labels: tuple[str, ...], top: int) -> dict[str, Any]:  # noqa: ANN401
        """The number."""
        return {"number": round(float(answer), 6)}

    def lines(
        self,
        row: Example,
        record: dict[str, Any],
        labels: tuple[str, ...],
        brief: Callable[[str], str],
    ) -> Iterator[str]:
        """Number, text."""
        yield f"{record['number']:9.4g}  {brief(row.text)}"

    def truth(self, row: Example) -> str:
        """Its number."""
        return f"{row.number:g}"

    def said(self, record: dict[str, Any]) -> str:
        """The number said."""
        return f"{record['number']:.4g}"

    def constant(self, answers: Sequence[Any]) -> bool:
        """Return whether all numbers are the same up to a ten-thousandth."""
        return len(answers) > 1 and bool(np.ptp(answers) <= 1e-4 * np.abs(answers).max())

    def describe(self, rows: Sequence[Example], labels: tuple[str, ...]) -> str:
        """The range of the numbers."""
        numbers = numbers_of(rows)
        return f"{numbers.min():g} to {numbers.max():g}, on average {numbers.mean():.3g}"


def numbers_of(rows: Sequence[Example]) -> NDArray[np.float64]:
    """The numbers of rows, (rows,)."""
    return np.array([row.number for row in rows], np.float64)


def _mean_and_spread(rows: Sequence[Example]) -> tuple[float, float]:
    numbers = numbers_of(rows)
    return float(numbers.mean()), float(numbers.std()) or 1.0
