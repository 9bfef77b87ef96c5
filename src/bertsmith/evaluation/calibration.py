"""Whether a model is right as often as its probabilities say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """The predictions whose probability is over `low` and at most `high`."""

    low: float
    high: float
    count: int
    confidence: float
    """their mean probability"""
    accuracy: float
    """the share of them that is right"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The expected calibration error, 0 to 1, and the bins that hold any prediction."""

    error: float
    bins: tuple[ReliabilityBin, ...]


def calibration(
    probabilities: NDArray[np.float64], right: NDArray[np.bool_], bins: int = BINS
) -> Calibration:
    """Compare the probability of each predicted class (examples,) with whether it is right.

    Bins are of equal width; the error is the mean distance of accuracy and confidence, weighted by
    the bins' counts (Guo et al. 2017, equation 3).
    """
    assert probabilities.shape == right.shape
    assert len(right)
    borders = np.linspace(0, 1, bins + 1)
    # a probability on a border belongs to the bin below it, 0 to the first
    number = np.searchsorted(borders[1:-1], probabilities)
    found = []
    for index in np.unique(number):
        inside = number == index
        found.append(
            ReliabilityBin(
                low=float(borders[index]),
                high=float(borders[index + 1]),
                count=int(inside.sum()),
                confidence=float(probabilities[inside].mean()),
                accuracy=float(right[inside].mean()),
            )
        )
    error = sum(each.count * abs(each.accuracy - each.confidence) for each in found) / len(right)
    return Calibration(error=float(error), bins=tuple(found))
