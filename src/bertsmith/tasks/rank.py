"""Ranking: the relevance of a passage to a query, by which the passages of a query are ordered."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ExampleError
from bertsmith.engine.answers import label_probabilities
from bertsmith.engine.predictor import Outputs
from bertsmith.evaluation.ranking import mean_average_precision, mean_reciprocal_rank, ndcg
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.texts import Relevance
from bertsmith.tasks.task import Evidence, Room, Scores
from bertsmith.tasks.weighing import LabelLoss
from bertsmith.tasks.whole_texts import TextTask
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

RELEVANCE = ("relevance",)
_CUTOFF = 10


@dataclass(frozen=True)
class Rank(TextTask):
    """Answers are relevances in [0, 1]; evidence three scores of each query."""

    called: ClassVar = "rank"
    outputs: ClassVar = staticmethod(label_probabilities)
    predicts: ClassVar = "number"
    title: ClassVar = "Ranking"
    kind: ClassVar = "rank"
    unit: ClassVar = "pairs"

    def labels(self, rows: Sequence[Example], known: Sequence[str]) -> tuple[str, ...]:
        """The relevance's name; raises `ExampleError` where nothing is to be told apart."""
        if len({row.number for row in rows}) < 2:
            raise ExampleError(
                "all passages are equally relevant",
                where=rows[0].source,
                remedy="give passages that do not answer their query too",
            )
        _check_relevance(rows)
        return RELEVANCE

    def check(
        self, train: Sequence[Example], dev: Sequence[Example], labels: tuple[str, ...]
    ) -> None:
        """Some query to be measured must have a passage that is relevant."""
        super().check(train, dev, labels)
        _check_relevance(dev)

    def identity(self, row: Example) -> Hashable:
        """A query stays on one side with all its passages."""
        return row.group

    def encode(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[Example],
        labels: tuple[str, ...],
        room: Room,
        *,
        labelled: bool,
    ) -> EncodedExamples:
        """A pair a unit; the highest relevance of all rows is 1."""
        encoded = self.encoded(tokenizer, rows, room)
        if not labelled:
            return encoded
        relevance = np.array([row.number for row in rows], np.float32)
        return encoded.labelled("rank", relevance / max(float(relevance.max()), 1e-9))

    def objective(
        self, rows: Sequence[Example], labels: tuple[str, ...], settings: LabelLoss
    ) -> Objective:
        """Binary cross-entropy of each pair."""
        return Objective(terms={"rank": Relevance()})

    def decode(
        self,
        rows: Sequence[Example],
        encoded: EncodedExamples,
        outputs: Outputs,
        labels: tuple[str, ...],
    ) -> Sequence[Any]:
        """Return the relevance of each pair."""
        return [float(output[0]) for output in outputs]

    def evidence(
        self, rows: Sequence[Example], answers: Sequence[Any], labels: tuple[str, ...]
    ) -> Evidence:
        """Reciprocal rank, average precision and nDCG of each query with a relevant passage.

        Raises `ExampleError` where there is none.
        """
        _check_relevance(rows)
        queries: dict[str | None, list[int]] = {}
        for place, row in enumerate(rows):
            queries.setdefault(row.group, []).append(place)
        relevance = np.array([row.number for row in rows], np.float64)
        said = np.array(answers, np.float64)
        found = []
        for places in queries.values():
            one, other = [relevance[places]], [said[places]]
            if one[0].max() > 0:
                found.append(
                    (
                        mean_reciprocal_rank(one, other),
                        mean_average_precision(one, other),
                        ndcg(one, other, k=_CUTOFF),
                    )
                )
        return np.array(found, np.float64)

    def scores(self, evidence: Evidence, labels: tuple[str, ...]) -> Scores:
        """Means over the queries."""
        return dict(zip(("mrr", "map", "ndcg@10"), evidence.mean(0).tolist(), strict=True))

    def record(self, answer: Any, labels: tuple[str, ...], top: int) -> dict[str, Any]:  # noqa: ANN401
        """The relevance."""
        return {"relevance": round(float(answer), 6)}

    def lines(
        self,
        row: Example,
        record: dict[str, Any],
        labels: tuple[str, ...],
        brief: Callable[[str], str],
    ) -> Iterator[str]:
        """Relevance, passage."""
        yield f"{record['relevance']:.4f}  {brief(row.text_pair or row.text)}"

    def parts(self, row: Example) -> dict[str, str]:
        """Return query, passage and relevance."""
        return {"query": row.text, "passage": row.text_pair or "", "relevance": self.truth(row)}

    def truth(self, row: Example) -> str:
        """Its relevance."""
        return f"{row.number:g}"

    def said(self, record: dict[str, Any]) -> str:
        """The relevance said."""
        return f"{record['relevance']:.4f}"

    def constant(self, answers: Sequence[Any]) -> bool:
        """Return whether all pairs are equally relevant up to a ten-thousandth."""
        return len(answers) > 1 and bool(np.ptp(answers) <= 1e-4)

    def right(self, evidence: Evidence) -> NDArray[np.bool_] | None:
        """Rankings are right by degrees."""
        return None

    def describe(self, rows: Sequence[Example], labels: tuple[str, ...]) -> str:
        """Queries, and how many pairs are relevant."""
        relevant = sum((row.number or 0) > 0 for row in rows)
        return f"{len({row.group for row in rows}):,} queries, {relevant:,} pairs relevant"


def _check_relevance(rows: Sequence[Example]) -> None:
    lowest = min(rows, key=lambda row: row.number or 0.0)
    if (lowest.number or 0.0) < 0:
        raise ExampleError(
            f"the relevance is {lowest.number}",
            where=lowest.source,
            line=lowest.line,
            remedy="relevance is 0 or more",
        )
    if not any(row.number for row in rows):
        raise ExampleError(
            f"none of {len(rows):,} passages is relevant",
            where=rows[0].source,
            remedy="give passages that answer their queries too, to measure with by --dev",
        )
