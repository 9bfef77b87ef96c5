from __future__ import annotations

import math

import numpy as np
import pytest

from bertsmith.core.streams import Purpose, stream
from bertsmith.evaluation.significance import bootstrap_interval, draws
from bounds import metric

scipy = pytest.importorskip("scipy.stats")


def expanded(count: int) -> float:
    """The share that scipy's percentile interval has to hold (Hesterberg 2015)."""
    if count < 2:
        return 1.0
    quantile = scipy.t.ppf(0.975, count - 1) * np.sqrt(count / (count - 1))
    return float(1 - 2 * scipy.norm.cdf(-quantile))


@pytest.mark.parametrize("seed", range(20))
def test_intervals_equal_those_of_scipy(seed: int) -> None:
    random = np.random.default_rng(1000 + seed)
    values = random.random(int(random.integers(2, 200))) < random.random()
    found = bootstrap_interval(
        lambda drawn: float(values[drawn].mean()), len(values), resamples=500, seed=seed
    )
    expected = scipy.bootstrap(
        (values.astype(float),),
        np.mean,
        confidence_level=expanded(len(values)),
        n_resamples=500,
        method="percentile",
        rng=np.random.default_rng(int(stream(Purpose.BOOTSTRAP, seed))),
    ).confidence_interval
    assert (found.low, found.high) == metric((expected.low, expected.high))


def test_draws_are_the_same_for_a_seed_however_many_are_made_at_once() -> None:
    count = 1 << 18  # so that few are made at once
    found = list(draws(count, 9, 3))
    assert len(found) == 9
    random = np.random.default_rng(int(stream(Purpose.BOOTSTRAP, 3)))
    assert np.array_equal(found, random.integers(0, count, (9, count)))


def test_draws_without_a_score_are_left_out() -> None:
    values = iter([math.nan, 1.0, math.nan, 3.0])
    found = bootstrap_interval(lambda _: next(values), 5, resamples=4)
    # the quantiles for five examples
    ends = 1 + 2 * np.array([1 - expanded(5), 1 + expanded(5)]) / 2
    assert (found.low, found.high) == (metric(ends[0]), metric(ends[1]))
    found = bootstrap_interval(lambda _: math.nan, 5, resamples=4)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    held = 0
    for seed in range(200):
        right = random.random(100) < 0.7
        found = bootstrap_interval(
            lambda drawn, right=right: float(right[drawn].mean()),  # type: ignore[misc]
            100,
            resamples=200,
            seed=seed,
        )
        held += found.low <= 0.7 <= found.high
    assert 177 <= held <= 199


@pytest.mark.parametrize(("count", "most"), [(8, 0.09), (20, 0.08)])
def test_the_interval_of_few_examples_is_as_wide_as_it_says(count: int, most: float) -> None:
    """The plain percentile interval misses the mean of 8 numbers in 12 cases of a hundred."""
    random = np.random.default_rng(3)
    missed, cases = 0, 200
    for seed in range(cases):
        values = random.normal(size=count)
        found = bootstrap_interval(
            lambda drawn, values=values: float(values[drawn].sum()) / count,  # type: ignore[misc]
            count,
            resamples=200,
            seed=seed,
        )
        missed += not found.low <= 0 <= found.high
    assert missed <= most * cases
