"""Whether two models differ on the same examples by more than chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.streams import Purpose, stream

Statistic = Callable[[NDArray[np.int64]], float]
"""The score of the examples of these numbers, which may repeat."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
_DRAWN_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Between what two values a score lies, in so large a share of the draws."""

    low: float
    high: float
    confidence: float


def draws(count: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """The numbers (count,) of the examples of each draw, the same for the same seed."""
    random = np.random.default_rng(int(stream(Purpose.BOOTSTRAP, seed)))
    rows = max(1, _DRAWN_AT_ONCE // count)
    for start in range(0, resamples, rows):
        yield from random.integers(0, count, (min(rows, resamples - start), count))


def bootstrap_interval(
    statistic: Statistic,
    count: int,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The percentile interval of a score of `count` examples.

    For a score that is a mean over examples give ``lambda drawn: values[drawn].mean()``. Draws for
    which it is not a number, as a correlation of constants, are left out.
    """
    assert count
    scores = np.array([statistic(drawn) for drawn in draws(count, resamples, seed)])
    return percentile_interval(scores, confidence)


def percentile_interval(scores: NDArray[np.float64], confidence: float) -> Interval:
    """The interval that so large a share of the scores lies in, as much left out on each side."""
    scores = scores[~np.isnan(scores)]
    if not len(scores):
        return Interval(low=float("nan"), high=float("nan"), confidence=confidence)
    low, high = np.quantile(scores, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(low=float(low), high=float(high), confidence=confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """How many examples only one of two models has right, and how likely that is by chance.

    `exact` is the two-sided p of the binomial test; `chi_squared` (with the correction for
    continuity, McNemar 1947 and Edwards 1948) has one degree of freedom, `p` is its.
    """

    only_first: int
    only_second: int
    exact: float
    chi_squared: float
    p: float


def mcnemar(first_right: NDArray[np.bool_], second_right: NDArray[np.bool_]) -> McNemar:
    """McNemar's test of which examples (examples,) each of two models has right."""
    assert first_right.shape == second_right.shape
    only_first = int(np.sum(first_right & ~second_right))
    only_second = int(np.sum(second_right & ~first_right))
    differing = only_first + only_second
    chi_squared = 0.0
    if differing:
        chi_squared = max(0, abs(only_first - only_second) - 1) ** 2 / differing
    return McNemar(
        only_first=only_first,
        only_second=only_second,
        exact=_two_sided(min(only_first, only_second), differing),
        chi_squared=chi_squared,
        p=math.erfc(math.sqrt(chi_squared / 2)),
    )


def _two_sided(fewer: int, trials: int) -> float:
    """How likely `trials` throws of a coin come out as unevenly as this, or more."""
    # in whole numbers, as the terms of thousands of throws are too small for floats
    ways, term = 0, 1
    for heads in range(fewer + 1):
        ways += term
        term = term * (trials - heads) // (heads + 1)
    return min(1.0, float(2 * ways / (1 << trials)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The first model's score less the second's, its interval, and its two-sided p."""

    difference: float
    interval: Interval
    p: float


def paired_bootstrap(
    first: Statistic,
    second: Statistic,
    count: int,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Compared:
    """The difference of two models' scores over draws of the same `count` examples for both.

    p is twice the share of the draws, one more counted, that are on the other side of no
    difference (Efron and Tibshirani 1993, chapter 15). Draws without a score are left out.
    """
    assert count
    everything = np.arange(count)
    differences = np.array(
        [first(drawn) - second(drawn) for drawn in draws(count, resamples, seed)]
    )
    kept = differences[~np.isnan(differences)]
    below, above = int(np.sum(kept <= 0)), int(np.sum(kept >= 0))
    return Compared(
        difference=first(everything) - second(everything),
        interval=percentile_interval(differences, confidence),
        p=min(1.0, 2 * (min(below, above) + 1) / (len(kept) + 1)),
    )
