"""How far a score might be another on other examples of the same kind: the bootstrap.

Efron 1979: the examples are drawn again, with replacement, as many as there are; the interval is
that between percentiles of the scores that come of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.randomness import Purpose, stream

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
