"""The calibration of a model: how well its probabilities match its accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """A bin of predictions whose probability is above `low` and at most `high`."""

    low: float
    high: float
    count: int
    confidence: float
    """Mean probability of the predictions."""
    accuracy: float
    """Share of the predictions that are correct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The expected calibration error, 0 to 1, and the non-empty bins."""

    error: float
    bins: tuple[ReliabilityBin, ...]


def calibration(
    probabilities: NDArray[np.float64], right: NDArray[np.bool_], bins: int = BINS
) -> Calibration:
    """Return the calibration of predicted classes, from probability and correctness (examples,).

    Bins have equal width; the error is the mean absolute difference of accuracy and confidence,
    weighted by the bins' counts (Guo et al. 2017, equation 3).
    """
    assert probabilities.shape == right.shape
    assert len(right)
    borders = np.linspace(0, 1, bins + 1)
    # a probability on a border belongs to the bin below it, 0 to the first bin
    number = np.searchsorted(borders[1:-1], probabilities)
    results = []
    for index in np.unique(number):
        inside = number == index
        results.append(
            ReliabilityBin(
                low=float(borders[index]),
                high=float(borders[index + 1]),
                count=int(inside.sum()),
                confidence=float(probabilities[inside].mean()),
                accuracy=float(right[inside].mean()),
            )
        )
    error = sum(item.count * abs(item.accuracy - item.confidence) for item in results) / len(right)
    return Calibration(error=float(error), bins=tuple(results))
