"""How well predicted numbers follow the true ones. Both are (examples,), the true ones first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def pearson(true: Numbers, predicted: Numbers) -> float:
    """Pearson's correlation, -1 to 1; NaN where one side is constant or there is one example."""
    assert true.shape == predicted.shape
    if len(true) < 2 or _constant(true) or _constant(predicted):
        return float("nan")
    product = np.dot(_unit(true), _unit(predicted))
    return float(np.clip(product, -1.0, 1.0))


def spearman(true: Numbers, predicted: Numbers) -> float:
    """Pearson's correlation of the ranks, those of equal numbers being their mean."""
    return pearson(ranks(true), ranks(predicted))


def ranks(numbers: Numbers) -> Numbers:
    """The place of each number among all, from 1; equal numbers share the mean of their places."""
    _, group, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Numbers = last - (counts - 1) / 2
    return means[group]


def _constant(numbers: Numbers) -> bool:
    return bool(np.all(numbers == numbers[0]))


def _unit(numbers: Numbers) -> Numbers:
    """The deviations from the mean, as a vector of length 1."""
    deviations = numbers - numbers.mean()
    # scaled first, so that the squares of small and large numbers stay in range
    deviations = deviations / np.abs(deviations).max()
    unit: Numbers = deviations / np.linalg.norm(deviations)
    return unit
