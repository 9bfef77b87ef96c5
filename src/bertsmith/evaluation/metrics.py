"""Scores of predicted classes. All take class numbers (examples,), the true ones first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Classes = NDArray[np.int64]


def accuracy(true: Classes, predicted: Classes) -> float:
    """Share of the examples predicted right."""
    _check(true, predicted)
    return float(np.mean(true == predicted))


def confusion_matrix(true: Classes, predicted: Classes, classes: int) -> NDArray[np.int64]:
    """Counts (classes, classes): rows the true class, columns the predicted one."""
    _check(true, predicted)
    counts = np.bincount(true * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.int64)


def macro_f1(true: Classes, predicted: Classes) -> float:
    """The mean F1 of the classes that are true or predicted at least once."""
    matrix = confusion_matrix(true, predicted, 1 + int(max(true.max(), predicted.max())))
    seen = matrix.sum(0) + matrix.sum(1)
    present = seen > 0
    return float(np.mean(2 * np.diagonal(matrix)[present] / seen[present]))


def micro_f1(true: Classes, predicted: Classes, classes: Sequence[int] | None = None) -> float:
    """F1 of all the examples of some classes together; of all classes it is the accuracy.

    Leaving out a class that says "none of these" is how relations are usually scored.
    """
    _check(true, predicted)
    counted = np.unique(np.concatenate([true, predicted])) if classes is None else list(classes)
    right = int(np.sum((true == predicted) & np.isin(true, counted)))
    seen = int(np.sum(np.isin(true, counted)) + np.sum(np.isin(predicted, counted)))
    return 2 * right / seen if seen else 0.0


def binary_f1(true: Classes, predicted: Classes, positive: int = 1) -> float:
    """F1 of one class; 0 where it is neither true nor predicted."""
    _check(true, predicted)
    both = int(np.sum((true == positive) & (predicted == positive)))
    seen = int(np.sum(true == positive) + np.sum(predicted == positive))
    return 2 * both / seen if seen else 0.0


def matthews(true: Classes, predicted: Classes) -> float:
    """Matthews' correlation, of any number of classes (Gorodkin 2004, equation 8).

    0 where all are of one class, or all are predicted so.
    """
    matrix = confusion_matrix(true, predicted, 1 + int(max(true.max(), predicted.max())))
    # in Python's integers: the products of large counts exceed 64 bits
    rows = [int(count) for count in matrix.sum(1)]
    columns = [int(count) for count in matrix.sum(0)]
    total, right = sum(rows), int(np.trace(matrix))
    expected = sum(row * column for row, column in zip(rows, columns, strict=True))
    spread_true = total**2 - sum(row**2 for row in rows)
    spread_predicted = total**2 - sum(column**2 for column in columns)
    if not spread_true * spread_predicted:
        return 0.0
    return (right * total - expected) / math.sqrt(spread_true * spread_predicted)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and the sample standard deviation, None for a single value."""
    assert len(values)
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1))


def _check(true: Classes, predicted: Classes) -> None:
    assert true.shape == predicted.shape
    assert len(true)
