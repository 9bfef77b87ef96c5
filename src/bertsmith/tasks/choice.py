"""One of several options, any number of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples, encode_examples
from bertsmith.core.errors import ConfigError
from bertsmith.engine.answers import option_scores
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.tasks import Choose
from bertsmith.tasks.confidence import (
    calibrate,
    choice_evidence,
    chosen_record,
    confidence_notes,
    record_keys,
    right_choices,
    tune_confidence,
)
from bertsmith.tasks.config import LabelLoss, Reading
from bertsmith.tasks.task import (
    Answers,
    Brief,
    Evidence,
    Labels,
    Learning,
    Measuring,
    Presentation,
    Reader,
    ReadingLimits,
    Record,
    Scoring,
    Task,
    Tuned,
)
from bertsmith.text.examples.example import folded
from bertsmith.text.examples.formats.choices import (
    Choice,
    describe_choices,
    find_label_start,
    read_choices,
)
from bertsmith.text.examples.formats.mctest import has_stories
from bertsmith.tokens.tokenizer import Tokenizer

# reading


def _read(file: Path, reading: Reading, *, labelled: bool) -> Iterator[Choice]:
    return read_choices(file, reading.columns, need_label=labelled, bad=reading.bad_rows)


def _resolve_reading(file: Path, reading: Reading) -> Reading:
    """Return the reading with what numeric labels count from."""
    start = find_label_start(file, reading.columns)
    return reading.with_changes(columns=replace(reading.columns, label_start="1" if start else "0"))


def _layout(file: Path, reading: Reading) -> str:
    """Return the columns of the question, its options and the label."""
    return describe_choices(file, reading.columns)


def _row_a_record(file: Path, reading: Reading) -> bool:
    """Return whether each row of a table is one question."""
    return not has_stories(file, reading.columns.encoding)


def _characters(row: Choice) -> int:
    """Return the length of the text with each option."""
    return sum(len(row.text) + len(option) for option in row.choices)


def _identity(row: Choice) -> Hashable:
    """Return the text, whose questions stay on one side of a split."""
    return folded(row.context or row.text)


def _right_options(rows: Sequence[Choice]) -> NDArray[np.int64]:
    """Return the right option of each question, from 0, (questions,)."""
    return np.array([row.label for row in rows], np.int64)


# answers


def _encode(tokenizer: Tokenizer, rows: Sequence[Choice], limits: ReadingLimits) -> EncodedExamples:
    """Encode a question as a unit, its options as pairs with the text.

    Of a long context with a question after it, the context is truncated.
    """
    if limits.long == "windows":
        raise ConfigError(
            "--truncation windows is not for multiple choice", remedy="take head, tail or head+tail"
        )
    return encode_examples(
        tokenizer,
        [row.text for row in rows for _ in row.choices],
        [option for row in rows for option in row.choices],
        longest=limits.longest,
        fit=limits.long,
        contexts=[row.context for row in rows for _ in row.choices],
    ).grouped([len(row.choices) for row in rows])


def _keys(labels: Labels, tuned: Tuned) -> tuple[str, ...]:
    return record_keys("choice", tuned)


def _record(answer: Any, labels: Labels, top: int, tuned: Tuned) -> Record:  # noqa: ANN401
    """Return the chosen option, from 0, and the probabilities of all."""
    chosen = chosen_record("choice", answer, range(len(answer)), tuned)
    return {**chosen, "probabilities": [round(float(share), 6) for share in answer]}


# learning


def _targets(rows: Sequence[Choice], labels: Labels, encoded: EncodedExamples) -> EncodedExamples:
    return encoded.labelled("choose", _right_options(rows))


def _objective(rows: Sequence[Choice], labels: Labels, settings: LabelLoss) -> Objective:
    """Return cross-entropy among the options of each question."""
    return Objective(terms={"choose": Choose()})


# measuring


def _evidence(rows: Sequence[Choice], answers: Sequence[Any], labels: Labels) -> Evidence:
    return choice_evidence(_right_options(rows), answers)


def _scoring(labels: Labels, tuned: Tuned) -> Scoring:
    """Return the share of the questions with the right option chosen."""
    return {"accuracy": lambda evidence: float(right_choices(evidence, tuned).mean())}


def _constant(rows: Sequence[Choice], answers: Sequence[Any]) -> bool:
    """Return whether all options of every question are equally likely."""
    return all(np.ptp(answer) < 1e-4 for answer in answers)


def _at_random(train: Sequence[Choice], dev: Sequence[Choice], labels: Labels) -> tuple[str, float]:
    return "choosing at random", float(np.mean([1 / len(row.choices) for row in dev]))


# presentation


def _lines(row: Choice, record: Record, labels: Labels, brief: Brief) -> Iterator[str]:
    """Yield the text, and below it the options with their probabilities."""
    yield brief(row.text)
    among = record.get("prediction_set", ())
    for number, (option, share) in enumerate(
        zip(row.choices, record["probabilities"], strict=True)
    ):
        sign = ">" if number == record["choice"] else "+" if number in among else " "
        yield f"  {sign} {share:.3f}  {brief(option)}"


def _inputs(row: Choice) -> dict[str, Any]:
    name = {} if row.id is None else {"id": row.id}
    return {**name, "text": row.text, "choices": list(row.choices)}


def _parts(row: Choice) -> dict[str, str]:
    options = {f"option {number}": option for number, option in enumerate(row.choices)}
    texts = {"text": row.text}
    if row.context is not None:
        # of a long context with its question only the context would be seen
        question = row.text.removeprefix(row.context).strip()
        texts = {"context": row.context, "question": question}
    return {**texts, **options, "right": f"option {row.label}"}


def _truth(row: Choice) -> str:
    assert row.label is not None
    return row.choices[row.label]


def _prediction(record: Record) -> str:
    return "-" if record["choice"] is None else f"option {record['choice']}"


def _chosen(row: Choice, record: Record) -> str:
    return "-" if record["choice"] is None else row.choices[record["choice"]]


def _describe(rows: Sequence[Choice], labels: Labels) -> str:
    """Return the numbers of options."""
    sizes = {len(row.choices) for row in rows}
    fewest, greatest = min(sizes), max(sizes)
    return f"{fewest} options each" if fewest == greatest else f"{fewest} to {greatest} options"


CHOICE = Task(
    name="choice",
    title="Multiple choice",
    unit="questions",
    head="choice",
    reader=Reader(
        labelled=partial(_read, labelled=True),
        unlabelled=partial(_read, labelled=False),
        characters=_characters,
        resolve=_resolve_reading,
        layout=_layout,
        row_a_record=_row_a_record,
    ),
    identity=_identity,
    question_key=attrgetter("text", "choices"),
    answers=Answers(
        encode=_encode,
        outputs=option_scores,
        record=_record,
        keys=_keys,
        thresholds=("min_confidence",),
    ),
    learning=Learning(targets=_targets, objective=_objective),
    measuring=Measuring(
        evidence=_evidence,
        scoring=_scoring,
        constant=_constant,
        tune=tune_confidence,
        right=right_choices,
        notes=partial(confidence_notes, "questions"),
        calibrate=calibrate,
        majority_baseline=_at_random,
    ),
    present=Presentation(
        lines=_lines,
        inputs=_inputs,
        truth=_truth,
        prediction=_prediction,
        describe=_describe,
        parts=_parts,
        chosen=_chosen,
    ),
)
"""Answers are the probabilities of the options."""
