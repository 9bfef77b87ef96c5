from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from bertsmith.evaluation.metrics import pearson, ranks, spearman
from bounds import metric

scipy = pytest.importorskip("scipy.stats")

many = pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.faults)])


def case(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Two rows of numbers: with ties, constant, huge, tiny, nearly or wholly the same."""
    random = np.random.default_rng(number)
    size = int(random.integers(2, 60))
    true = random.normal(size=size) * 10.0 ** random.integers(-6, 7)
    if number % 4 == 0:
        true = random.integers(0, random.integers(1, 6), size).astype(float)
    noise = random.normal(size=size) * random.choice([0.0, 0.1, 1.0])
    predicted = true * random.choice([-1.0, 0.0, 1.0]) + noise
    if number % 5 == 0:
        predicted = np.round(predicted, 1)
    return true, predicted


@many
@pytest.mark.parametrize(("ours", "name"), [(pearson, "pearsonr"), (spearman, "spearmanr")])
def test_random_correlations_equal_those_of_scipy(ours: object, name: str, count: int) -> None:
    constant = 0
    for number in range(count):
        true, predicted = case(number)
        with warnings.catch_warnings():
            # it warns of constants; its value is asked for all the same
            warnings.simplefilter("ignore")
            expected = float(getattr(scipy, name)(true, predicted).statistic)
        found = ours(true, predicted)  # type: ignore[operator]
        constant += math.isnan(expected)
        assert found == metric(expected, nan_ok=True), number
    assert 10 < constant < count / 2


def test_ranks_share_the_mean_of_their_places() -> None:
    numbers = np.array([3.0, 1.0, 3.0, 2.0, 3.0])
    assert ranks(numbers).tolist() == [4.0, 1.0, 4.0, 2.0, 4.0]
    for number in range(100):
        true, _ = case(number)
        assert np.array_equal(ranks(true), scipy.rankdata(true))


def test_one_example_has_no_correlation() -> None:
    one = np.array([1.0])
    assert math.isnan(pearson(one, one))
    assert math.isnan(spearman(one, one))


def test_numbers_whose_squares_no_float_holds_have_a_correlation() -> None:
    true, predicted = np.random.default_rng(3).normal(size=(2, 20))
    expected = float(scipy.pearsonr(true, predicted).statistic)
    assert pearson(true * 1e-200, predicted * 1e200) == metric(expected)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("ours", [pearson, spearman])
def test_numbers_that_are_not_finite_correlate_as_in_scipy(ours: object, odd: float) -> None:
    true = np.arange(5.0)
    for place in range(5):
        predicted = true.copy()
        predicted[place] = odd
        with np.errstate(invalid="ignore"):
            expected = float(getattr(scipy, f"{ours.__name__}r")(true, predicted).statistic)  # type: ignore[attr-defined]
        for found in (ours(true, predicted), ours(predicted, true)):  # type: ignore[operator]
            assert found == metric(expected, nan_ok=True), place
