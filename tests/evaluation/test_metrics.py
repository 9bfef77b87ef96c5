from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from sklearn import metrics as sklearn

from bertsmith.evaluation import metrics
from bounds import metric

# in `make faults` ten times as many
many = pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.faults)])


def cases(classes: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random truths and predictions, from a single example to agreement and to nonsense."""
    random = np.random.default_rng(classes)
    found = []
    for _ in range(count):
        size = int(random.integers(1, 60))
        true = random.integers(0, random.integers(1, classes + 1), size)
        predicted = np.where(
            random.random(size) < random.choice([0.0, 0.5, 1.0]),
            true,
            random.integers(0, random.integers(1, classes + 1), size),
        )
        found.append((true.astype(np.int64), predicted.astype(np.int64)))
    return found


@many
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_scores_equal_those_of_scikit_learn(classes: int, times: int) -> None:
    with warnings.catch_warnings():
        # it warns of a single class; its value is asked for all the same
        warnings.simplefilter("ignore")
        for true, predicted in cases(classes, 50 * times):
            expected = sklearn.accuracy_score(true, predicted)
            assert metrics.accuracy(true, predicted) == metric(expected)
            expected = sklearn.f1_score(true, predicted, average="macro", zero_division=0)
            assert metrics.macro_f1(true, predicted) == metric(expected)
            expected = sklearn.matthews_corrcoef(true, predicted)
            assert metrics.matthews(true, predicted) == metric(expected)
            matrix = sklearn.confusion_matrix(true, predicted, labels=range(classes))
            pairs = {(i, j): matrix[i, j] for i, j in zip(*matrix.nonzero(), strict=True)}
            assert metrics.confusion_counts(true, predicted) == pairs


@many
def test_binary_f1_equals_that_of_scikit_learn(times: int) -> None:
    for true, predicted in cases(2, 120 * times):
        expected = sklearn.f1_score(true, predicted, average="binary", zero_division=0)
        assert metrics.CLASS_SCORES["f1"](true, predicted) == metric(expected)


def test_matthews_does_not_overflow() -> None:
    true = np.zeros(300_000, np.int64)
    true[100_000:] = 1
    predicted = np.roll(true, 10_000)
    expected = sklearn.matthews_corrcoef(true, predicted)
    assert metrics.matthews(true, predicted) == metric(expected)


def test_mean_and_spread() -> None:
    mean, spread = metrics.mean_and_spread([0.9, 0.8, 0.85, 0.95])
    assert mean == metric(0.875)
    assert spread == metric(np.std([0.9, 0.8, 0.85, 0.95], ddof=1))
    assert metrics.mean_and_spread([0.9]) == (0.9, None)


@pytest.mark.parametrize("score", [metrics.macro_f1, metrics.matthews])
def test_memory_grows_with_the_classes_not_with_their_square(
    score: Callable[[np.ndarray, np.ndarray], float],
) -> None:
    peaks = []
    for classes in (500, 2000):
        true = np.arange(classes)
        tracemalloc.start()
        try:
            assert score(true, true) == metric(1.0)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # four times the classes: a matrix of them takes 16 times the memory
    assert peaks[1] < 8 * peaks[0]
