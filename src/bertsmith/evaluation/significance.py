"""Significance of the difference of two models on the same examples, and bootstrap intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.streams import Purpose, stream

Statistic = Callable[[NDArray[np.int64]], float]
"""The score of the examples with the given indices, which may repeat."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
NO_INTERVAL = "no interval, as all resamples of these rows score the same"
_DRAWN_AT_ONCE = 1 << 20
# means of several models that agree differ by so much
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The interval that contains a score in 95 % of the resamples, NaN to NaN for none."""

    low: float
    high: float

    @property
    def known(self) -> bool:
        """Return whether the examples give an interval."""
        return not math.isnan(self.low)


class Clusters:
    """Examples that are no independent evidence, such as the questions of one text: drawn as one.

    Resampled one by one they give intervals that are too narrow (Davison and Hinkley 1997, section
    3.8; Miller 2024, "Adding error bars to evals").
    """

    def __init__(self, keys: Sequence[Hashable]) -> None:
        """Take a key for each example; equal ones belong together."""
        numbers: dict[Hashable, int] = {}
        self.numbers = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
        """The cluster of each example (examples,), from 0 in the order of the first ones."""
        self._sizes = np.bincount(self.numbers, minlength=len(numbers))
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._order = np.argsort(self.numbers, kind="stable")

    @classmethod
    def alone(cls, examples: int) -> Clusters:
        """Return the clusters of examples of which each is evidence of its own."""
        return cls(range(examples))

    @property
    def count(self) -> int:
        """The number of clusters."""
        return len(self._sizes)

    def having(self, examples: NDArray[np.bool_]) -> int:
        """Return the number of clusters with one of some examples, given by a mask."""
        return len(np.unique(self.numbers[examples]))

    def statistic(self, of_examples: Statistic) -> Statistic:
        """Return the score of all examples of the clusters with the given indices."""

        def of_clusters(drawn: NDArray[np.int64]) -> float:
            sizes = self._sizes[drawn]
            ends = np.cumsum(sizes)
            within = np.arange(ends[-1]) - np.repeat(ends - sizes, sizes)
            return of_examples(self._order[np.repeat(self._starts[drawn], sizes) + within])

        return of_clusters


def draws(count: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield the example indices (count,) of each resample, deterministic for a seed."""
    random = np.random.default_rng(int(stream(Purpose.BOOTSTRAP, seed)))
    rows = max(1, _DRAWN_AT_ONCE // count)
    for start in range(0, resamples, rows):
        yield from random.integers(0, count, (min(rows, resamples - start), count))


def bootstrap_interval(
    statistic: Statistic, count: int, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the expanded percentile interval of a score of `count` examples (Hesterberg 2015).

    For a mean over examples pass ``lambda drawn: values[drawn].mean()``. Resamples for which the
    score is NaN, such as a correlation of constants, are left out.
    """
    assert count
    scores = np.array([statistic(drawn) for drawn in draws(count, resamples, seed)])
    return _percentile_interval(scores, count)


def share_interval(interval: Interval, count: int | None, *, lowest: float = 0.0) -> Interval:
    """Return the interval of a share or mean over `count` examples, given that of its bootstrap.

    Where all resamples agree, as where all examples are right, the bootstrap has no width. All
    examples have one value then; by the exact binomial interval (Clopper and Pearson 1934) a share
    of up to 1 - (alpha / 2)^(1 / count) has others, which lie between `lowest` and 1 and may all
    be at one end. For a share that is 0 or 1 this is the exact interval itself. A share of parts of
    examples, such as the F1 of entities, counts its examples, as if the parts of one were all alike
    (Korn and Graubard 1998). Without a `count` there is no interval.
    """
    if interval.high - interval.low > _ROUNDING:
        return interval
    if not count:
        return replace(interval, low=math.nan, high=math.nan)
    value, same = interval.low, ((1 - CONFIDENCE) / 2) ** (1 / count)
    return replace(interval, low=lowest + (value - lowest) * same, high=1 - (1 - value) * same)


def mean_of(values: NDArray[np.float64]) -> Statistic:
    """Return the mean of values as a score of their examples."""
    return lambda drawn: float(values[drawn].mean())


def mean_interval(values: NDArray[np.float64], *, resamples: int = RESAMPLES) -> Interval:
    """Return the expanded percentile interval of the mean of values."""
    return bootstrap_interval(mean_of(values), len(values), resamples=resamples)


def _percentile_interval(scores: NDArray[np.float64], count: int) -> Interval:
    """Return the central interval of the scores of resamples of `count` examples."""
    scores = scores[~np.isnan(scores)]
    if not len(scores):
        return Interval(low=math.nan, high=math.nan)
    outside = _share_outside((1 - CONFIDENCE) / 2, count)
    low, high = np.quantile(scores, [outside, 1 - outside])
    return Interval(low=float(low), high=float(high))


# Resamples spread by a factor of sqrt((n - 1) / n) too little, and a mean of few examples is as far
# from the truth as Student's t says and not the normal distribution (Hesterberg 2015).


def _share_outside(probability: float, count: int) -> float:
    """Return the share of the resamples to leave out at one end for a tail of a probability."""
    from scipy.special import ndtr, stdtrit

    if count < 2:
        return 0.0
    return float(ndtr(stdtrit(count - 1, probability) * math.sqrt(count / (count - 1))))


def _probability(share: float, count: int) -> float:
    """Return the probability of a tail with a share of the resamples, as `_share_outside` has it.

    At most 1/2.
    """
    from scipy.special import ndtri, stdtr

    if count < 2 or share >= 0.5:
        return 0.5
    return float(stdtr(count - 1, ndtri(share) * math.sqrt((count - 1) / count)))


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """The result of McNemar's test (1947): examples that only one of two models predicts right.

    `exact` is the two-sided p-value of the binomial test.
    """

    only_first: int
    only_second: int
    exact: float


def mcnemar(first_right: NDArray[np.bool_], second_right: NDArray[np.bool_]) -> McNemar:
    """Return McNemar's test of two models, from the correctness (examples,) of each."""
    assert first_right.shape == second_right.shape
    only_first = int(np.sum(first_right & ~second_right))
    only_second = int(np.sum(second_right & ~first_right))
    exact = _two_sided(min(only_first, only_second), only_first + only_second)
    return McNemar(only_first=only_first, only_second=only_second, exact=exact)


def _two_sided(fewer: int, trials: int) -> float:
    """Return the two-sided p-value of the binomial test with probability 1/2."""
    # integers, as the terms of thousands of trials underflow floats
    ways, term = 0, 1
    for heads in range(fewer + 1):
        ways += term
        term = term * (trials - heads) // (heads + 1)
    return min(1.0, float(2 * ways / (1 << trials)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The first model's score minus the second's, its interval, and its two-sided p-value."""

    difference: float
    interval: Interval
    p: float


def paired_bootstrap(
    first: Statistic, second: Statistic, count: int, *, resamples: int = RESAMPLES, seed: int = 0
) -> Compared:
    """Compare two models by a paired bootstrap over the same `count` examples.

    p is twice the probability that belongs to the share of the resamples, plus one, with a
    difference of the opposite sign: below 0.05 the interval does not contain 0. Resamples without
    a score are left out.
    """
    assert count
    all_examples = np.arange(count)
    differences = np.array(
        [first(drawn) - second(drawn) for drawn in draws(count, resamples, seed)]
    )
    differences[np.abs(differences) < _ROUNDING] = 0.0
    valid = differences[~np.isnan(differences)]
    below, above = int(np.sum(valid <= 0)), int(np.sum(valid >= 0))
    return Compared(
        difference=first(all_examples) - second(all_examples),
        interval=_percentile_interval(differences, count),
        p=2 * _probability((min(below, above) + 1) / (len(valid) + 1), count),
    )


def welch_margin(first: Sequence[float], second: Sequence[float]) -> float:
    """Return half the width of Welch's interval (1947) of the difference of two means.

    A side of one value is a constant. With few values it is far wider than two standard errors: 4.3
    of them with two values on each side, of equal variance, and 12.7 with two beside a constant.
    """
    # importing it takes a while
    from scipy.stats import t

    varying = [side for side in (first, second) if len(side) > 1]
    shares = [statistics.variance(side) / len(side) for side in varying]
    if not (total := sum(shares)):
        return 0.0
    sides = zip(shares, varying, strict=True)
    freedom = total**2 / sum(share**2 / (len(side) - 1) for share, side in sides)
    return float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(total)


def over_seeds(margin: float) -> str:
    """Return a note on the `welch_margin` of a difference; where it is 0, that seeds are equal."""
    if not margin:
        return "over the seeds no spread: each scores the same"
    return f"over the seeds, by Welch's t: ±{100 * margin:.2f}"
