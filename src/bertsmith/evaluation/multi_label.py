"""Scores of examples that may have several classes: (examples, labels), the true ones first."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Sets = NDArray[np.bool_]
Average = Literal["micro", "macro", "samples"]


def exact_match(true: Sets, predicted: Sets) -> float:
    """Share of the examples whose classes are all right and no others."""
    _check(true, predicted)
    return float(np.mean(np.all(true == predicted, axis=1)))


def multi_label_f1(true: Sets, predicted: Sets, average: Average = "micro") -> float:
    """F1 of all decisions together, or the mean of that of each label, or of each example.

    A label or example for which nothing is true and nothing predicted counts 0.
    """
    _check(true, predicted)
    axis = {"micro": None, "macro": 0, "samples": 1}[average]
    both = np.asarray(np.sum(true & predicted, axis=axis))
    seen = np.asarray(np.sum(true, axis=axis) + np.sum(predicted, axis=axis))
    f1 = np.divide(2 * both, seen, out=np.zeros(seen.shape), where=seen > 0)
    return float(np.mean(f1))


def _check(true: Sets, predicted: Sets) -> None:
    assert true.shape == predicted.shape
    assert true.size
