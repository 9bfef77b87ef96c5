"""Metrics of predicted classes, sets of labels and numbers, and their presentation.

All functions take the true values first. Classes are class numbers (examples,)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Classes = NDArray[np.int64]


def accuracy(true: Classes, predicted: Classes) -> float:
    """Return the share of the examples predicted correctly."""
    _check(true, predicted)
    return float(np.mean(true == predicted))


def confusion_matrix(true: Classes, predicted: Classes, classes: int) -> NDArray[np.int64]:
    """Return counts (classes, classes): rows are true classes, columns predicted ones."""
    _check(true, predicted)
    counts = np.bincount(true * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.int64)


def macro_f1(true: Classes, predicted: Classes) -> float:
    """Return the mean F1 of the classes that are true or predicted at least once."""
    matrix = confusion_matrix(true, predicted, 1 + int(max(true.max(), predicted.max())))
    seen = matrix.sum(0) + matrix.sum(1)
    present = seen > 0
    return float(np.mean(2 * np.diagonal(matrix)[present] / seen[present]))


def micro_f1(true: Classes, predicted: Classes, classes: Sequence[int] | None = None) -> float:
    """Return the micro-averaged F1 over `classes`; over all classes it equals the accuracy.

    Relation extraction is usually scored without the class "none of these".
    """
    _check(true, predicted)
    counted = np.unique(np.concatenate([true, predicted])) if classes is None else list(classes)
    right = int(np.sum((true == predicted) & np.isin(true, counted)))
    seen = int(np.sum(np.isin(true, counted)) + np.sum(np.isin(predicted, counted)))
    return 2 * right / seen if seen else 0.0


def binary_f1(true: Classes, predicted: Classes, positive: int = 1) -> float:
    """Return the F1 of one class; 0 if it is neither true nor predicted."""
    _check(true, predicted)
    both = int(np.sum((true == positive) & (predicted == positive)))
    seen = int(np.sum(true == positive) + np.sum(predicted == positive))
    return 2 * both / seen if seen else 0.0


def matthews(true: Classes, predicted: Classes) -> float:
    """Return the Matthews correlation of any number of classes (Gorodkin 2004, equation 8).

    0 if all examples are of one class, or all predictions are.
    """
    matrix = confusion_matrix(true, predicted, 1 + int(max(true.max(), predicted.max())))
    # Python integers: the products of large counts exceed 64 bits
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
    """Return the mean and the sample standard deviation, None for a single value."""
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
    """Return Pearson's correlation, -1 to 1; NaN for a constant side or a single example."""
    assert true.shape == predicted.shape
    if len(true) < 2 or _constant(true) or _constant(predicted):
        return float("nan")
    product = np.dot(_unit(true), _unit(predicted))
    return float(np.clip(product, -1.0, 1.0))


def spearman(true: Numbers, predicted: Numbers) -> float:
    """Return Spearman's correlation; equal numbers have the mean of their ranks."""
    return pearson(ranks(true), ranks(predicted))


def ranks(numbers: Numbers) -> Numbers:
    """Return the rank of each number, from 1; equal numbers have the mean of their ranks."""
    _, group, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Numbers = last - (counts - 1) / 2
    return means[group]


def _constant(numbers: Numbers) -> bool:
    return bool(np.all(numbers == numbers[0]))


def _unit(numbers: Numbers) -> Numbers:
    """Return the deviations from the mean, scaled to unit norm."""
    deviations = numbers - numbers.mean()
    # scaled first to keep the squares of small and large numbers in range
    deviations = deviations / np.abs(deviations).max()
    unit: Numbers = deviations / np.linalg.norm(deviations)
    return unit


Sets = NDArray[np.bool_]
Average = Literal["micro", "macro", "samples"]


def exact_match(true: Sets, predicted: Sets) -> float:
    """Return the share of the examples whose predicted set of classes equals the true one."""
    _check_sets(true, predicted)
    return float(np.mean(np.all(true == predicted, axis=1)))


def multi_label_f1(true: Sets, predicted: Sets, average: Average = "micro") -> float:
    """Return the F1 over all decisions, or its mean over labels or over examples.

    A label or example without true or predicted positives counts 0.
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
"""A function of true and predicted values, one row per example; higher is better, at most 1."""

CLASS_SCORES: dict[str, Score] = {
    "accuracy": accuracy,
    "f1": binary_f1,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "matthews": matthews,
}
"""Metrics of class numbers (examples,); ``f1`` is that of class 1."""

CLASSES_SCORES: dict[str, Score] = {"exact_match": exact_match, "multi_label_f1": multi_label_f1}
"""Metrics of label sets (examples, labels)."""

NUMBER_SCORES: dict[str, Score] = {"pearson": pearson, "spearman": spearman}
"""Metrics of numbers (examples,)."""

METRICS = CLASS_SCORES | CLASSES_SCORES | NUMBER_SCORES


WORDS = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "mrr": "MRR",
    "map": "MAP",
    "ndcg": "nDCG",
    "exact_match": "exact match",
}


def score_label(name: str) -> str:
    """Return the display name of a score."""
    return WORDS.get(name, name.replace("_", " "))


def percent(value: float) -> str:
    """Return a score in per cent."""
    return f"{100 * value:.2f}"


def format_scores(scores: Mapping[str, float]) -> str:
    """Return scores in one line: ``accuracy 91.20 %, macro F1 90.87 %``."""
    return ", ".join(f"{score_label(name)} {percent(value)} %" for name, value in scores.items())


def format_mean(values: Sequence[float]) -> str:
    """Return mean and spread in per cent: ``91.20 ± 0.34``."""
    mean, spread = mean_and_spread(values)
    return percent(mean) + ("" if spread is None else f" ± {percent(spread)}")


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)
