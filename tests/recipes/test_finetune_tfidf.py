from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bertsmith.recipes.labelled import LabelledData
from bertsmith.recipes.linear import STRENGTHS, linear_answers
from bertsmith.recipes.rivals import TFIDF, TFIDF_NUMBERS
from bertsmith.recipes.tasks.classify import Classify
from bertsmith.recipes.tasks.multi_label import MultiLabel
from bertsmith.recipes.tasks.regression import Regression
from bertsmith.recipes.tasks.task import Room, Task
from bertsmith.recipes.tfidf import tfidf_rival
from bertsmith.recipes.trial import Prepared, prepare
from bertsmith.text.examples import Example
from bertsmith.tokens.tokenizer import Tokenizer


def row(text: str, pair: str | None = None, **label: object) -> Example:
    known = {"label": None, **label}
    return Example(text=text, text_pair=pair, source="memory", line=1, **known)  # type: ignore[arg-type]


def prepared(
    tokenizer: Tokenizer, task: Task[Example], rows: list[Example], train: int
) -> Prepared:
    labels = task.labels(rows, ())
    data = LabelledData(
        task=task, labels=labels, train=rows[:train], dev=rows[train:], dev_is_cut=False
    )
    return prepare(data, tokenizer, Room(longest=32))


def test_it_learns_words_and_beats_the_commonest_class(tiny_tokenizer: Tokenizer) -> None:
    random = np.random.default_rng(0)
    names = ["red", "green", "blue"]
    rows = [
        row(" ".join(random.choice(["and", "or", "the"], 5)) + f" {names[k]}", label=names[k])
        for k in random.integers(0, 3, 150)
    ]
    found = tfidf_rival(prepared(tiny_tokenizer, Classify(), rows, 120))
    assert found is not None
    assert found.name == TFIDF
    assert found.scores == ({"accuracy": 1.0, "macro_f1": 1.0},)
    assert found.simpler


def test_the_texts_of_a_pair_are_told_apart(tiny_tokenizer: Tokenizer) -> None:
    """The class is the side on which the word stands: a bag of both sides says nothing."""
    rows = [
        row("red" if n % 2 else "blue", "blue" if n % 2 else "red", label=str(n % 2))
        for n in range(60)
    ]
    found = tfidf_rival(prepared(tiny_tokenizer, Classify(), rows, 40))
    assert found is not None
    assert found.mean == 1.0


def test_numbers_and_several_labels_have_a_linear_rival_too(tiny_tokenizer: Tokenizer) -> None:
    random = np.random.default_rng(1)
    words = [random.choice(["one", "two", "six", "ten"], 6).tolist() for _ in range(120)]
    numbers = [row(" ".join(each), number=float(each.count("ten"))) for each in words]
    found = tfidf_rival(prepared(tiny_tokenizer, Regression(), numbers, 90))
    assert found is not None
    assert found.name == TFIDF_NUMBERS
    assert found.mean > 0.9
    several = [
        row(" ".join(each), labels=tuple(sorted(set(each) & {"two", "six"}))) for each in words
    ]
    found = tfidf_rival(prepared(tiny_tokenizer, MultiLabel(), several, 90))
    assert found is not None
    assert found.mean > 0.95


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
