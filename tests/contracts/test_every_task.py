"""What holds for the parts of every task in the table, each tried alone."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.batches.examples import EncodedExamples, pack_examples
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.tasks.answering import task_predictor
from bertsmith.tasks.config import LabelLoss, Reading
from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.rows import task_named
from bertsmith.tasks.table import HEADS, TASKS, task_of
from bertsmith.tasks.task import UNTUNED, Labels, ReadingLimits, Task, Tuned, score_answers
from bertsmith.tasks.uncertainty import interval_of
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS

WORDS = tuple(f"word{n}" for n in range(20))
TOKENIZER = Tokenizer((*SPECIALS, *WORDS), BasicRules(lowercase=True))
ROOM = ReadingLimits(longest=16)
ROWS = 24


def row_of(name: str, number: int) -> dict[str, Any]:
    """A row as a line of JSONL; some texts are longer than what is read at once."""
    random = np.random.default_rng(number)
    tokens = [f"word{n}" for n in random.integers(0, 20, 3 + number % 23)]
    text, odd = " ".join(tokens), number % 2
    match name:
        case "classify":
            return {"text": text, "label": "up" if odd else "down"}
        case "multi-label":
            return {"text": text, "labels": ["a", "b"][: number % 3]}
        case "regression":
            return {"text": text, "score": number / 7}
        case "rank":
            query = f"word{number // 4}"
            return {"query": query, "passage": text, "relevance": odd}
        case "choice":
            options = [*tokens[:2], "word7"][: 2 + odd]
            return {"text": text, "choices": options, "label": odd}
        case "tag":
            return {"tokens": tokens, "tags": ["B-X", "I-X", *["O"] * (len(tokens) - 2)]}
        case "span":
            start = len(tokens[0]) + 1
            answers = {"text": [tokens[1]] * odd, "answer_start": [start] * odd}
            context = {"question": "word1 word2", "context": text}
            return {"id": f"q{number}", **context, "answers": answers}
    raise AssertionError(f"give rows for the new task {name}")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A task with rows read by it, and a model that has learned nothing."""

    file: Path
    task: Task[Any]
    rows: list[Any]
    labels: Labels
    model: Model

    @property
    def answers(self) -> list[Any]:
        return list(task_predictor(self.task, self.model, TOKENIZER, ROOM)(self.rows))

    @property
    def encoded(self) -> EncodedExamples:
        return self.task.answers.encode(TOKENIZER, self.rows, ROOM)


@pytest.fixture(scope="module", params=list(TASKS))
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    task = TASKS[request.param]
    assert task.head == HEADS[request.param]
    file = tmp_path_factory.mktemp(task.name) / "rows.jsonl"
    lines = (json.dumps(row_of(task.name, number)) for number in range(ROWS))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = list(task.reader.labelled(file, task.reader.resolve(file, Reading())))
    labels = task.labels.names(rows, ())
    encoder = EncoderConfig(
        vocabulary=TOKENIZER.size, hidden=16, layers=1, heads=2, feed_forward=24, longest=16,
        initial_std=0.5,
    )  # fmt: skip
    config = ModelConfig(encoder=encoder).with_head(task.head, labels)
    return Tried(
        file=file, task=task, rows=rows, labels=labels, model=build_model(config, seed=3).eval()
    )


def arrays(value: object) -> Iterator[np.ndarray[Any, Any]]:
    """All numbers of an answer, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from arrays(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield np.array(value)


@pytest.mark.parametrize("name", [*TASKS, *GLUE])
def test_a_task_reaches_other_processes_whole(name: str) -> None:
    task = task_named(name)
    assert task.name == name
    sent = pickle.loads(pickle.dumps(task))
    assert sent.answers == task.answers
    assert sent.learning == task.learning
    assert sent.labels.fixed == task.labels.fixed


def test_a_model_is_asked_by_the_task_that_it_was_trained_for(tried: Tried) -> None:
    config = tried.model.config
    assert task_of(config) is tried.task
    for threshold in tried.task.answers.thresholds:
        tuned = replace(UNTUNED, **{threshold: 0.25})
        kept = tuned.kept_in(config)
        assert Tuned.of_model(ModelConfig.from_dict(kept.to_dict())) == tuned
        assert task_of(kept) is tried.task


def test_rows_are_read_split_and_shown(tried: Tried) -> None:
    task, labels = tried.task, tried.labels
    assert [row.line for row in tried.rows] == list(range(1, ROWS + 1))
    assert all(task.reader.characters(row) > 0 for row in tried.rows)
    assert len({task.identity(row) for row in tried.rows}) > 1
    assert {label for row in tried.rows for label in task.labels.of_row(row)} <= set(labels)
    # the parent's order is kept
    turned = tuple(reversed(labels))
    if task.labels.picked is not None:
        assert task.labels.names(tried.rows, turned) == turned
        kept = task.labels.picked(tried.rows, lambda label: label == labels[0])
        found = {label for row in kept for label in task.labels.of_row(row)}
        assert found == {labels[0]}
    task.labels.check(tried.rows, tried.rows, labels)
    for row in tried.rows:
        parts = task.present.labelled_parts(row)
        assert parts
        assert all(isinstance(text, str) for text in parts.values())
        assert task.present.truth(row)
        json.dumps(task.present.inputs(row))
    unlabelled = list(task.reader.unlabelled(tried.file, Reading()))
    assert list(map(task.present.inputs, unlabelled)) == list(map(task.present.inputs, tried.rows))


def test_rows_encoded_together_are_those_encoded_alone(tried: Tried) -> None:
    together = list(tried.encoded.by_row())
    assert len(together) == tried.encoded.texts == len(tried.rows)
    assert tried.encoded.long_texts == sum(bool(item.long.any()) for item in together) > 0
    for row, own in zip(tried.rows, together, strict=True):
        alone = tried.task.answers.encode(TOKENIZER, [row], ROOM)
        assert [ids.tolist() for ids in own.ids] == [ids.tolist() for ids in alone.ids]
        assert all(len(ids) <= ROOM.longest for ids in own.ids)
        assert own.starts.tolist() == alone.starts.tolist()
        assert own.cut.tolist() == alone.cut.tolist()
        if own.positions is not None:
            assert alone.positions is not None
            assert (
                np.concatenate(own.positions).tolist() == np.concatenate(alone.positions).tolist()
            )


def test_rows_answered_together_are_those_answered_alone(tried: Tried) -> None:
    task, labels, answers = tried.task, tried.labels, tried.answers
    predictor = task_predictor(task, tried.model, TOKENIZER, ROOM)
    for row, answer in zip(tried.rows[:6], answers, strict=False):
        (alone,) = predictor([row])
        record = task.answers.record(answer, labels, 3, UNTUNED)
        again = task.answers.record(alone, labels, 3, UNTUNED)
        assert json.dumps(record)
        assert record.keys() == again.keys()
        assert tuple(record) == task.answers.keys(labels, UNTUNED)
        for one, other in zip(arrays(record), arrays(again), strict=True):
            assert one == pytest.approx(other, abs=2e-5)
        assert isinstance(task.present.prediction(record), str)
        lines = list(task.present.lines(row, record, labels, lambda text: text[:9]))
        assert lines
        assert all(isinstance(line, str) and "\n" not in line for line in lines)


def test_a_threshold_withholds_answers(tried: Tried) -> None:
    record = tried.task.answers.record
    answer = tried.answers[0]
    strict = {"no_answer": -math.inf, "min_confidence": math.inf}
    for name, value in strict.items():
        tuned = replace(UNTUNED, **{name: value})
        withheld = record(answer, tried.labels, 3, tuned)
        changed = withheld != record(answer, tried.labels, 3, UNTUNED)
        assert changed == (name in tried.task.answers.thresholds)


def test_records_with_sets_of_classes_have_the_keys_that_are_told(tried: Tried) -> None:
    tuned = replace(UNTUNED, set_threshold=0.1)
    record = tried.task.answers.record(tried.answers[0], tried.labels, 3, tuned)
    assert tuple(record) == tried.task.answers.keys(tried.labels, tuned)


def test_targets_and_objective_give_a_loss_that_can_be_minimised(tried: Tried) -> None:
    learning = tried.task.learning
    encoded = learning.targets(tried.rows, tried.labels, tried.encoded)
    objective = learning.objective(tried.rows, tried.labels, LabelLoss())
    assert encoded.labels is not None
    assert set(objective.terms) == {encoded.target}
    model = build_model(tried.model.config, seed=5)
    loss = objective(model, pack_examples(encoded, np.arange(len(encoded)))).total()
    loss.backward()
    assert math.isfinite(loss.item())
    head = model.get_parameter(f"heads.{model.config.head}.weight").grad
    assert head is not None
    assert head.abs().sum() > 0
    learning.finish(model, tried.rows)


def test_scores_are_functions_of_evidence(tried: Tried) -> None:
    task, labels, measuring = tried.task, tried.labels, tried.task.measuring
    measured = score_answers(task, tried.rows, tried.answers, labels)
    evidence, tuned = measured.evidence, measured.tuned
    assert np.isfinite(evidence).all()
    assert all(-1 <= score <= 1 for score in measured.scores.values())
    # thresholds are best for the rows that they were tuned on
    untuned = measuring.scores(evidence, labels, UNTUNED)
    primary = next(iter(measured.scores))
    assert measured.scores[primary] >= untuned[primary]
    assert score_answers(task, tried.rows, tried.answers, labels, tuned=tuned).tuned == tuned
    interval = interval_of(task, evidence, labels, measured.clusters, tuned)
    assert interval.low <= measured.scores[primary] <= interval.high
    if measuring.right is not None:
        right = measuring.right(evidence, tuned)
        assert right.shape == (len(evidence),)
    assert not measuring.constant(tried.rows, tried.answers)
    assert measuring.constant(tried.rows[:3], [tried.answers[0]] * 3) or task.name == "choice"
    baseline = measuring.majority_baseline(tried.rows, tried.rows, labels)
    assert baseline is None or 0 <= baseline[1] <= 1
    assert isinstance(measuring.notes(evidence, tuned), list)
    calibrated = measuring.calibrate(evidence, measured.answers)
    assert (calibrated is not None) == ("min_confidence" in task.answers.thresholds)
    if calibrated is not None:
        assert calibrated.examples == len(tried.rows)
        everything = replace(UNTUNED, set_threshold=0.0)
        record = task.answers.record(tried.answers[0], labels, 1, everything)
        assert len(record["prediction_set"]) == len(tried.answers[0])
        assert list(task.present.lines(tried.rows[0], record, labels, str))
    assert isinstance(task.present.describe(tried.rows, labels), str)


def test_tasks_are_told_apart_by_what_they_learn() -> None:
    tasks: list[Task[Any]] = list(TASKS.values())
    assert len({task.title for task in tasks}) == len(tasks)
    assert len({(task.head, task.labels.fixed) for task in tasks}) == len(tasks)
