from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bertsmith.recipes.baselines import STRENGTHS, tfidf_baseline


def test_it_learns_words_and_beats_the_commonest_class() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 150).astype(np.int64)
    texts = [
        (" ".join(random.choice(["and", "or", "the"], 5)) + f" {['red', 'green', 'blue'][k]}", None)
        for k in labels
    ]
    found = tfidf_baseline(texts[:120], labels[:120], texts[120:], labels[120:])
    assert found.accuracy == found.macro_f1 == 1.0
    assert found.predictions.tolist() == labels[120:].tolist()
    assert found.strength in STRENGTHS


def test_the_texts_of_a_pair_are_told_apart() -> None:
    """The class is the side on which the word stands: a bag of both sides says nothing."""
    labels = np.arange(60) % 2
    pairs = [("red" if label else "blue", "blue" if label else "red") for label in labels]
    found = tfidf_baseline(pairs[:40], labels[:40], pairs[40:], labels[40:])
    assert found.accuracy == 1.0


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_few_examples_are_enough(count: int) -> None:
    labels = np.arange(count) % 2
    texts = [("!?", None), ("one", None), ("!", None), ("1", None), ("é", None)][:count]
    found = tfidf_baseline(texts, labels, texts[:1], labels[:1])
    assert found.predictions.shape == (1,)


def test_strengths_rise() -> None:
    assert all(low < high for low, high in pairwise(STRENGTHS))
