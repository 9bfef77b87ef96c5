from __future__ import annotations

import math
import re
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

from bertsmith.recipes.finetune import baselines
from bertsmith.recipes.finetune.baselines import (
    STRENGTHS,
    TFIDF,
    TFIDF_NUMBERS,
    BaselineScores,
    SkippedBaseline,
    StrengthSelection,
    chosen_strength,
    linear_answers,
)
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared, prepare
from bertsmith.recipes.finetune.tfidf import Plan, plan, tfidf_baseline
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.multi_label import MULTI_LABEL
from bertsmith.tasks.regression import REGRESSION
from bertsmith.tasks.task import ReadingLimits, Task
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.tokenizer import Tokenizer


def row(text: str, pair: str | None = None, **label: object) -> Example:
    known = {"label": None, **label}
    return Example(text=text, text_pair=pair, source="memory", line=1, **known)  # type: ignore[arg-type]


def prepared(
    tokenizer: Tokenizer, task: Task[Example], rows: list[Example], train: int
) -> Prepared:
    labels = task.labels.names(rows, ())
    data = LabelledData(
        task=task, labels=labels, train=rows[:train], dev=rows[train:], dev_is_cut=False
    )
    return prepare(data, tokenizer, ReadingLimits(longest=32))


def test_it_learns_words_and_beats_the_commonest_class(tiny_tokenizer: Tokenizer) -> None:
    random = np.random.default_rng(0)
    names = ["red", "green", "blue"]
    rows = [
        row(" ".join(random.choice(["and", "or", "the"], 5)) + f" {names[k]}", label=names[k])
        for k in random.integers(0, 3, 150)
    ]
    found = tfidf_baseline(prepared(tiny_tokenizer, CLASSIFY, rows, 120))
    assert isinstance(found, BaselineScores)
    assert found.name == TFIDF
    assert found.scores == ({"accuracy": 1.0, "macro_f1": 1.0},)
    assert found.simpler


def test_the_texts_of_a_pair_are_told_apart(tiny_tokenizer: Tokenizer) -> None:
    """The class is the side on which the word stands: a bag of both sides says nothing."""
    rows = [
        row(f"{'red' if n % 2 else 'blue'} {n}", "blue" if n % 2 else "red", label=str(n % 2))
        for n in range(60)
    ]
    found = tfidf_baseline(prepared(tiny_tokenizer, CLASSIFY, rows, 40))
    assert isinstance(found, BaselineScores)
    assert found.mean == 1.0


def test_numbers_and_several_labels_have_a_linear_rival_too(tiny_tokenizer: Tokenizer) -> None:
    random = np.random.default_rng(1)
    words = [random.choice(["one", "two", "six", "ten"], 6).tolist() for _ in range(120)]
    numbers = [row(" ".join(word), number=float(word.count("ten"))) for word in words]
    found = tfidf_baseline(prepared(tiny_tokenizer, REGRESSION, numbers, 90))
    assert isinstance(found, BaselineScores)
    assert found.name == TFIDF_NUMBERS
    assert found.mean > 0.9
    several = [
        row(" ".join(word), labels=tuple(sorted(set(word) & {"two", "six"}))) for word in words
    ]
    found = tfidf_baseline(prepared(tiny_tokenizer, MULTI_LABEL, several, 90))
    assert isinstance(found, BaselineScores)
    assert found.mean > 0.95


def test_the_strength_is_chosen_by_the_score_of_the_task(tiny_tokenizer: Tokenizer) -> None:
    """Where a class is rare, accuracy asks for models that never predict it: no correlation."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(600):
        rare = random.random() < 0.25
        words = [f"w{k}" for k in random.integers(0, 40, 6)]
        words += ["hint"] * int(random.random() < (0.45 if rare else 0.12))
        rows.append(row(" ".join(words), label="0" if rare else "1"))
    found = tfidf_baseline(prepared(tiny_tokenizer, GLUE["CoLA"], rows, 300))
    assert isinstance(found, BaselineScores)
    assert found.mean > 0.2


def test_copies_of_a_text_are_in_one_fold(tiny_tokenizer: Tokenizer) -> None:
    """Divided among the folds, they made the weakest regularisation the best: it knew them."""
    random = np.random.default_rng(5)
    words = [random.choice([f"w{k}" for k in range(30)], 5).tolist() for _ in range(90)]
    rows = [
        row(" ".join(text), number=float(("w1" in text) + ("w2" in text) + random.normal()))
        for text in words
    ]
    found = tfidf_baseline(prepared(tiny_tokenizer, REGRESSION, [*3 * rows[:60], *rows[60:]], 180))
    alone = tfidf_baseline(prepared(tiny_tokenizer, REGRESSION, rows, 60))
    assert isinstance(found, BaselineScores)
    assert isinstance(alone, BaselineScores)
    strengths = [float(of.detail.split("1/")[1].split(";")[0]) for of in (found, alone)]
    assert strengths[0] <= 1 >= strengths[1]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_few_examples_are_enough(count: int) -> None:
    features, truths = np.eye(5)[:count], np.arange(count) % 2
    answers, strength = linear_answers("class", features, truths, features[:1], 3)
    assert strength in STRENGTHS
    assert answers[0].shape == (3,)
    # a class that none of the examples has gets no probability
    assert answers[0][2] == 0


def test_strengths_rise() -> None:
    assert all(low < high for low, high in pairwise(STRENGTHS))


@pytest.mark.parametrize(
    ("characters", "rows", "classes", "characters_too", "kept"),
    [
        # messages of some words: everything
        (400_000, 5_000, 1, True, 5_000),
        # questions of fifty kinds
        (280_000, 5_452, 50, False, 5_452),
        # reviews
        (30_000_000, 25_000, 1, False, 3_472),
    ],
)
def test_what_would_take_too_long_is_made_smaller(
    characters: int, rows: int, classes: int, characters_too: bool, kept: int
) -> None:
    found = plan(characters, rows, classes, 20.0)
    assert isinstance(found, Plan)
    assert found.characters == characters_too
    assert found.rows == kept
    whole = plan(characters, rows, classes, 0.0)
    assert whole == Plan(characters=True, rows=rows, features=math.inf, seconds=math.inf)


@pytest.mark.parametrize(
    ("classes", "reason"), [(5_300, r"about [\d,]+ GB of memory"), (900, r"about [\d,]+ s$")]
)
def test_what_cannot_be_done_has_a_reason(classes: int, reason: str) -> None:
    found = plan(20_000_000, 100_000, classes, 20.0)
    assert isinstance(found, str)
    assert re.search(reason, found)


def test_the_texts_of_dev_are_counted_too() -> None:
    """A large dev set takes its time from the training rows, or leaves none."""
    alone = plan(400_000, 5_000, 1, 20.0)
    beside = plan(400_000, 5_000, 1, 20.0, dev_characters=1_200_000)
    assert isinstance(alone, Plan)
    assert isinstance(beside, Plan)
    assert alone.characters
    assert not beside.characters
    assert isinstance(plan(400_000, 5_000, 1, 20.0, dev_characters=6_000_000), str)


def test_no_strength_is_tried_after_the_time() -> None:
    """On a busy machine counting alone may take all of it; the model is trained all the same."""
    features, truths = np.eye(30)[:, :2], np.arange(30) % 2
    late = StrengthSelection(until=time.perf_counter())
    strength, tried = chosen_strength("class", features, truths, 2, STRENGTHS, late)
    assert (strength, tried) == (STRENGTHS[len(STRENGTHS) // 2], 0)
    answers, used = linear_answers("class", features, truths, features[:3], 2, selection=late)
    assert (len(answers), used) == (3, strength)


def test_the_products_of_the_solver_have_one_thread(
    tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    fit = baselines._logistic

    def counting(*arguments: Any) -> Any:  # noqa: ANN401
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return fit(*arguments)

    monkeypatch.setattr(baselines, "_logistic", counting)
    rows = [row(f"and the {name} {n}", label=name) for n in range(60) for name in ("red", "blue")]
    with threadpool_limits(2, user_api="blas"):
        tfidf_baseline(prepared(tiny_tokenizer, CLASSIFY, rows, 100))
    assert set(seen) == {1}


def test_what_cannot_be_done_is_left_out(tiny_tokenizer: Tokenizer) -> None:
    rows = [row(f"{n} " + "of many words " * 9, label=f"c{n % 300}") for n in range(700)]
    found = tfidf_baseline(prepared(tiny_tokenizer, CLASSIFY, rows, 600), seconds=0.1)
    assert isinstance(found, SkippedBaseline)
    assert "300 classes would take about" in str(found)
    assert "--baseline-seconds 0 tries it all the same" in str(found)


def test_the_rarest_features_are_left_out_where_memory_is_short(
    tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.recipes.finetune.tfidf._MAX_BYTES", 24 * 8 * 3 * 2000.0)
    random = np.random.default_rng(0)
    names = ["red", "green", "blue"]
    rows = [
        row(
            " ".join(random.choice(["and", "or", "the"], 5)) + f" {names[n % 3]} {n}",
            label=names[n % 3],
        )
        for n in range(600)
    ]
    found = tfidf_baseline(prepared(tiny_tokenizer, CLASSIFY, rows, 500))
    assert isinstance(found, BaselineScores)
    assert found.mean == 1.0


def test_one_fold_of_some_rows_chooses_the_strength_too() -> None:
    random = np.random.default_rng(0)
    truths = random.integers(0, 2, 400)
    features = np.stack([truths + random.normal(0, 1, 400), random.normal(0, 1, 400)], 1)
    for choosing in (
        StrengthSelection(),
        StrengthSelection(folds=1),
        StrengthSelection(folds=1, rows=60),
    ):
        answers, _ = linear_answers("class", features, truths, features, 2, selection=choosing)
        right = np.mean([answer.argmax() for answer in answers] == truths)
        assert right == pytest.approx(0.69, abs=0.03)
