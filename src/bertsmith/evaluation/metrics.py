"""Scores of predicted classes. All take class numbers (examples,), the true ones first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

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


Sets = NDArray[np.bool_]
Average = Literal["micro", "macro", "samples"]


def exact_match(true: Sets, predicted: Sets) -> float:
    """Share of the examples whose classes are all right and no others."""
    _check_sets(true, predicted)
    return float(np.mean(np.all(true == predicted, axis=1)))


def multi_label_f1(true: Sets, predicted: Sets, average: Average = "micro") -> float:
    """F1 of all decisions together, or the mean of that of each label, or of each example.

    A label or example for which nothing is true and nothing predicted counts 0.
    """
    _check_sets(true, predicted)
    axis = {"micro": None, "macro": 0, "samples": 1}[average]
    both = np.asarray(np.sum(true & predicted, axis=axis))
    seen = np.asarray(np.sum(true, axis=axis) + np.sum(predicted, axis=axis))
    f1 = np.divide(2 * both, seen, out=np.zeros(seen.shape), where=seen > 0)
    return float(np.mean(f1))


def _check_sets(true: Sets, predicted: Sets) -> None:
    assert true.shape == predicted.shape
    assert true.size


Score = Callable[[NDArray[Any], NDArray[Any]], float]
"""Takes what is true and what was predicted, a row an example; higher is better, 1 is the most."""

CLASS_SCORES: dict[str, Score] = {
    "accuracy": accuracy,
    "f1": binary_f1,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "matthews": matthews,
}
"""Of class numbers (examples,); ``f1`` is that of class 1."""

CLASSES_SCORES: dict[str, Score] = {"exact_match": exact_match, "multi_label_f1": multi_label_f1}
"""Of which labels apply, (examples, labels)."""

NUMBER_SCORES: dict[str, Score] = {"pearson": pearson, "spearman": spearman}
"""Of numbers (examples,)."""

METRICS = CLASS_SCORES | CLASSES_SCORES | NUMBER_SCORES
