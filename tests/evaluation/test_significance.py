from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from bertsmith.core.streams import Purpose, stream
from bertsmith.evaluation.significance import (
    Clusters,
    Interval,
    bootstrap_interval,
    mcnemar,
    mean_of,
    paired_bootstrap,
    share_interval,
    welch_margin,
)
from bounds import metric

scipy = pytest.importorskip("scipy.stats")


def test_a_thousand_mcnemars_equal_scipys_binomial() -> None:
    for number in range(1000):
        random = np.random.default_rng(number)
        size = int(random.integers(1, 300))
        first = random.random(size) < random.choice([0.0, 0.5, 0.9, 1.0])
        second = np.where(random.random(size) < random.choice([0.0, 0.8, 1.0]), first, ~first)
        found = mcnemar(first, second)
        table = [[np.sum(a & b) for b in (second, ~second)] for a in (first, ~first)]
        one, other = int(table[0][1]), int(table[1][0])
        assert (found.only_first, found.only_second) == (one, other)
        if one + other == 0:
            assert found.exact == 1.0
            continue
        both = 2 * float(scipy.binom.cdf(min(one, other), one + other, 0.5))
        assert found.exact == metric(min(1.0, both))
        if number % 20 == 0:  # slow
            expected = scipy.binomtest(one, one + other, 0.5).pvalue
            assert found.exact == metric(expected)


def test_the_exact_p_of_many_examples() -> None:
    size = 20_000
    first = np.arange(size) < 10_300
    found = mcnemar(first, ~first)
    expected = scipy.binomtest(10_300, size, 0.5).pvalue
    assert found.exact == pytest.approx(expected, rel=1e-9)


def test_the_exact_p_by_hand() -> None:
    first = np.array([True] * 9 + [False] * 2)
    expected = Fraction(2 * (1 + 11 + 55), 2**11)
    assert mcnemar(first, ~first).exact == float(expected)


@pytest.mark.parametrize("seed", range(10))
def test_the_interval_of_a_difference_equals_that_of_scipy(seed: int) -> None:
    random = np.random.default_rng(50 + seed)
    size = int(random.integers(5, 120))
    true = random.normal(size=size)
    sides = [true + random.normal(size=size) * noise for noise in (0.5, 0.8)]

    def correlation(side: np.ndarray, drawn: np.ndarray) -> float:
        return float(np.corrcoef(true[drawn], side[drawn])[0, 1])

    found = paired_bootstrap(
        lambda drawn: correlation(sides[0], drawn),
        lambda drawn: correlation(sides[1], drawn),
        size,
        resamples=300,
        seed=seed,
    )
    # the interval of Hesterberg 2015, and the p-value that belongs to it
    stretch = np.sqrt(size / (size - 1))
    expected = scipy.bootstrap(
        (np.arange(size),),
        lambda drawn: correlation(sides[0], drawn) - correlation(sides[1], drawn),
        vectorized=False,
        n_resamples=300,
        confidence_level=1 - 2 * scipy.norm.cdf(-scipy.t.ppf(0.975, size - 1) * stretch),
        method="percentile",
        rng=np.random.default_rng(int(stream(Purpose.BOOTSTRAP, seed))),
    )
    interval = expected.confidence_interval
    assert found.interval.low == metric(interval.low)
    assert found.interval.high == metric(interval.high)
    beyond = np.mean(expected.bootstrap_distribution <= 0)
    if beyond < 0.5:
        normal = scipy.norm.ppf((beyond * 300 + 1) / 301)
        assert found.p == metric(2 * scipy.t.cdf(normal / stretch, size - 1))
    everything = np.arange(size)
    difference = correlation(sides[0], everything) - correlation(sides[1], everything)
    assert found.difference == metric(difference)


def test_resamples_without_a_score_are_left_out_of_p() -> None:
    scores = iter([math.nan, 1.0, 2.0, math.nan, -1.0, 3.0, 7.0])
    found = paired_bootstrap(lambda _: next(scores), lambda _: 0.0, 5, resamples=6)
    # one of four is below 0; of five examples, Student's t has four degrees of freedom
    deviation = scipy.norm.ppf((1 + 1) / (4 + 1)) * math.sqrt(4 / 5)
    assert found.p == metric(2 * scipy.t.cdf(deviation, 4))
    assert found.difference == 7


def test_clusters_of_any_size_are_drawn_with_all_their_examples() -> None:
    seen: list[list[int]] = []

    def score(drawn: np.ndarray) -> float:
        seen.append(drawn.tolist())
        return 0.0

    clusters = Clusters(list("babbca"))
    clusters.statistic(score)(np.array([2, 0, 1, 0]))
    of_a, of_b, of_c = [1, 5], [0, 2, 3], [4]
    assert seen == [[*of_c, *of_b, *of_a, *of_b]]
    assert clusters.having(np.array([1, 0, 1, 1, 0, 0], bool)) == 1


def test_models_that_are_the_same_do_not_differ() -> None:
    right = np.random.default_rng(2).random(50) < 0.6

    def score(drawn: np.ndarray) -> float:
        return float(right[drawn].mean())

    found = paired_bootstrap(score, score, 50, resamples=100)
    assert (found.difference, found.interval.low, found.interval.high, found.p) == (0, 0, 0, 1)


def test_chance_alone_is_rarely_called_a_difference() -> None:
    random = np.random.default_rng(11)
    called = 0
    for seed in range(150):
        one, other = random.random((2, 80)) < 0.7
        found = paired_bootstrap(
            lambda drawn, one=one: float(one[drawn].mean()),  # type: ignore[misc]
            lambda drawn, other=other: float(other[drawn].mean()),  # type: ignore[misc]
            80,
            resamples=200,
            seed=seed,
        )
        called += found.p < 0.05
        assert not math.isnan(found.p)
    assert called <= 16


def test_few_examples_are_called_different_as_rarely_as_many() -> None:
    """By the share of the resamples alone, 11 of a hundred pairs of equal models were."""
    random = np.random.default_rng(5)
    called, cases = 0, 200
    for seed in range(cases):
        one, other = random.normal(size=(2, 8))
        found = paired_bootstrap(
            lambda drawn, one=one: float(one[drawn].sum()) / 8,  # type: ignore[misc]
            lambda drawn, other=other: float(other[drawn].sum()) / 8,  # type: ignore[misc]
            8,
            resamples=200,
            seed=seed,
        )
        called += found.p < 0.05
        assert (found.p < 0.05) <= (not found.interval.low <= 0 <= found.interval.high)
    assert called <= 0.08 * cases


@pytest.mark.parametrize("count", [1, 12, 90])
@pytest.mark.parametrize("right", [0, 1])
def test_a_share_of_none_or_all_has_the_exact_interval(count: int, right: int) -> None:
    found = share_interval(bootstrap_interval(lambda drawn: float(right), count), count)
    expected = scipy.binomtest(right * count, count).proportion_ci(0.95, method="exact")
    assert (found.low, found.high) == (metric(expected.low), metric(expected.high))
    between = Interval(low=0.0, high=0.25)
    assert share_interval(between, count) == between


@pytest.mark.parametrize("lowest", [0.0, -1.0])
def test_a_mean_of_equal_values_has_room_for_the_values_that_were_not_drawn(lowest: float) -> None:
    """With 17 equal examples, a share of 1 - 0.025^(1/17) others may all be at one end."""
    others = 1 - scipy.binomtest(17, 17).proportion_ci(0.95, method="exact").low
    found = share_interval(Interval(low=0.4, high=0.4), 17, lowest=lowest)
    assert found.low == metric(0.4 * (1 - others) + lowest * others)
    assert found.high == metric(0.4 * (1 - others) + others)


def test_a_score_that_is_no_share_has_no_interval_without_width() -> None:
    found = share_interval(Interval(low=1.0, high=1.0), None)
    assert not found.known
    assert share_interval(Interval(low=0.2, high=1.0), None).known


def test_a_mean_of_models_that_agree_differs_by_no_rounding() -> None:
    right = np.random.default_rng(0).random(120).round()

    # of as many, nearly half of the means are rounded
    def mean_of_ten(drawn: np.ndarray) -> float:
        return float(np.mean([right[drawn].mean()] * 10))

    compared = paired_bootstrap(mean_of_ten, mean_of(right), len(right), resamples=500)
    assert (compared.interval.low, compared.interval.high, compared.p) == (0, 0, 1)
    rounded = Interval(low=-1.1e-16, high=1.1e-16)
    interval = share_interval(rounded, len(right), lowest=-1.0)
    # one row in each direction that was not drawn: 1 - 0.025 ** (1 / 120)
    assert interval.high == pytest.approx(1 - 0.025 ** (1 / 120), abs=1e-12)
    assert interval.low == pytest.approx(-interval.high, abs=1e-12)


@pytest.mark.parametrize(("one", "other"), [(2, 2), (3, 2), (5, 5), (2, 9)])
def test_the_margin_over_seeds_is_that_of_welchs_interval(one: int, other: int) -> None:
    random = np.random.default_rng(one)
    first, second = random.normal(0.9, 0.01, one), random.normal(0.8, 0.05, other)
    interval = scipy.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    found = welch_margin(first.tolist(), second.tolist())
    assert found == pytest.approx((interval.high - interval.low) / 2)
    assert welch_margin([0.5, 0.5], [0.4, 0.4, 0.4]) == 0
