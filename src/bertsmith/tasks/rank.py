"""Ranking: the relevance of a passage to a query, by which the passages of a query are ordered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ExampleError
from bertsmith.core.printable import counted, rounded
from bertsmith.engine.answers import probability_of, text_outputs
from bertsmith.evaluation.metrics import mean_average_precision, mean_reciprocal_rank, ndcg
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.tasks import Relevance
from bertsmith.tasks.config import LabelLoss
from bertsmith.tasks.regression import decode_number, number_truth, numbers_of
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
)
from bertsmith.tasks.whole_texts import check_rows, encode_texts, text_inputs, text_reader
from bertsmith.text.examples.example import Example

RELEVANCE = ("relevance",)
_CUTOFF = 10


# labels


def _names(rows: Sequence[Example], known: Sequence[str]) -> Labels:
    """Return the relevance's name; raises `ExampleError` where all pairs are equally relevant."""
    if len({row.number for row in rows}) < 2:
        raise ExampleError(
            "all passages are equally relevant",
            where=rows[0].source,
            remedy="give passages that do not answer their query too",
        )
    _check_relevance(rows)
    return RELEVANCE


def _check(train: Sequence[Example], dev: Sequence[Example], labels: Labels) -> None:
    """Raise `ExampleError` where no query to be measured has a passage that is relevant."""
    check_rows(None, train, dev, labels)
    _check_relevance(dev)


def _check_relevance(rows: Sequence[Example]) -> None:
    if not any(row.number for row in rows):
        raise ExampleError(
            f"none of {counted(len(rows), 'passage')} is relevant",
            where=rows[0].source,
            remedy="give passages that answer their queries too",
        )


def _keys(labels: Labels, tuned: Tuned) -> tuple[str, ...]:
    """Return the keys of a record."""
    return ("relevance",)


def _record(answer: Any, labels: Labels, top: int, tuned: Tuned) -> Record:  # noqa: ANN401
    return {"relevance": rounded(probability_of(answer))}


# learning


def _targets(rows: Sequence[Example], labels: Labels, encoded: EncodedExamples) -> EncodedExamples:
    """Return each unit with a relevance; the highest of all rows is 1."""
    relevance = np.array([row.number for row in rows], np.float32)
    return encoded.labelled("rank", relevance / max(float(relevance.max()), 1e-9))


def _objective(rows: Sequence[Example], labels: Labels, settings: LabelLoss) -> Objective:
    """Return binary cross-entropy of each pair."""
    return Objective(terms={"rank": Relevance()})


# measuring


def _evidence(rows: Sequence[Example], answers: Sequence[Any], labels: Labels) -> Evidence:
    """Return reciprocal rank, average precision and nDCG of each query with a relevant passage.

    Raises `ExampleError` where there is none.
    """
    _check_relevance(rows)
    queries: dict[str | None, list[int]] = {}
    for index, row in enumerate(rows):
        queries.setdefault(row.group, []).append(index)
    relevance, predicted = numbers_of(rows), np.array(answers, np.float64)
    evidence = []
    for places in queries.values():
        one, other = [relevance[places]], [predicted[places]]
        if one[0].max() > 0:
            evidence.append(
                (
                    mean_reciprocal_rank(one, other),
                    mean_average_precision(one, other),
                    ndcg(one, other, k=_CUTOFF),
                )
            )
    return np.array(evidence, np.float64)


def _scoring(labels: Labels, tuned: Tuned) -> Scoring:
    """Return means over the queries."""
    return {name: partial(_mean, column) for column, name in enumerate(("mrr", "map", "ndcg@10"))}


def _mean(column: int, evidence: Evidence) -> float:
    return float(evidence.mean(0)[column])


def _constant(rows: Sequence[Example], answers: Sequence[Any]) -> bool:
    """Return whether all pairs are equally relevant up to a ten-thousandth."""
    return bool(np.ptp([probability_of(answer) for answer in answers]) <= 1e-4)


def _at_random(
    train: Sequence[Example], dev: Sequence[Example], labels: Labels
) -> tuple[str, float]:
    """Return the mean score of all orders, which is that of equal scores."""
    return "ordering passages at random", _mean(0, _evidence(dev, [0.0] * len(dev), labels))


# presentation


def _lines(row: Example, record: Record, labels: Labels, brief: Brief) -> Iterator[str]:
    """Yield relevance, passage."""
    yield f"{_prediction(record)}  {brief(row.text_pair or row.text)}"


def _prediction(record: Record) -> str:
    return f"{record['relevance']:z.4f}"


def _describe(rows: Sequence[Example], labels: Labels) -> str:
    """Return the numbers of queries, of those that scores leave out, and of relevant pairs."""
    relevant = [row.group for row in rows if (row.number or 0) > 0]
    queries = {row.group for row in rows}
    without = len(queries) - len({*relevant})
    left_out = counted(without, "query", "queries") + " without a relevant passage"
    return (
        f"{counted(len(queries), 'query', 'queries')}, {counted(len(relevant), 'pair')} relevant"
        + (f"; scores leave out {left_out}" if without else "")
    )


def _parts(row: Example) -> dict[str, str]:
    return {"query": row.text, "passage": row.text_pair or "", "relevance": number_truth(row)}


RANK = Task(
    name="rank",
    title="Ranking",
    unit="pairs",
    head="number",
    reader=text_reader("rank"),
    labels=Labelling(names=_names, fixed=RELEVANCE, check=_check),
    # a query with all its passages
    identity=attrgetter("group"),
    answers=Answers(
        encode=encode_texts,
        outputs=text_outputs,
        decode=decode_number,
        record=_record,
        keys=_keys,
    ),
    learning=Learning(targets=_targets, objective=_objective),
    measuring=Measuring(
        evidence=_evidence, scoring=_scoring, constant=_constant, majority_baseline=_at_random
    ),
    present=Presentation(
        lines=_lines,
        inputs=text_inputs,
        truth=number_truth,
        prediction=_prediction,
        describe=_describe,
        parts=_parts,
    ),
)
"""Answers are logits, which have an order where relevances are all 1; evidence has a row for each
query."""
