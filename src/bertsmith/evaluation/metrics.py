"""Metrics of predicted classes, sets of labels, numbers and rankings, and their presentation.

All functions take the true values first. Classes are class numbers (examples,). Those of rankings
take, for every query, the relevance (passages,) and the score (passages,) of its passages, and
return the mean over the queries; a query without a relevant passage counts 0. Ties are averaged
over all their orders (McSherry and Najork 2008), so the result does not depend on the order of the
file. Numbers and scores that are NaN make the result NaN. `calibration` compares probabilities with
the accuracy they promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertsmith.core.streams import Purpose, stream

Classes = NDArray[np.int64]


def accuracy(true: Classes, predicted: Classes) -> float:
    """Return the share of the examples predicted correctly."""
    _check(true, predicted)
    return float(np.mean(true == predicted))


def confusion_counts(true: Classes, predicted: Classes) -> dict[tuple[int, int], int]:
    """Return the count of each pair of a true and a predicted class that occurs, in order."""
    _check(true, predicted)
    # thousands of classes make a matrix of millions of zeros
    pairs, counts = np.unique(np.stack([true, predicted], 1), axis=0, return_counts=True)
    keys = ((int(row), int(column)) for row, column in pairs)
    return dict(zip(keys, counts.tolist(), strict=True))


def macro_f1(true: Classes, predicted: Classes) -> float:
    """Return the mean F1 of the classes that are true or predicted at least once."""
    rows, columns, both = _class_counts(true, predicted)
    seen = rows + columns
    present = seen > 0
    return float(np.mean(2 * both[present] / seen[present]))


def binary_f1(true: Classes, predicted: Classes) -> float:
    """Return the F1 of class 1; 0 if it is neither true nor predicted."""
    _check(true, predicted)
    both = int(np.sum((true == 1) & (predicted == 1)))
    seen = int(np.sum(true == 1) + np.sum(predicted == 1))
    return 2 * both / seen if seen else 0.0


def matthews(true: Classes, predicted: Classes) -> float:
    """Return the Matthews correlation of any number of classes (Gorodkin 2004, equation 8).

    0 if all examples are of one class, or all predictions are.
    """
    true_counts, predicted_counts, both = _class_counts(true, predicted)
    # Python integers: the products of large counts exceed 64 bits
    rows = [int(count) for count in true_counts]
    columns = [int(count) for count in predicted_counts]
    total, right = sum(rows), int(both.sum())
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


def _class_counts(true: Classes, predicted: Classes) -> tuple[Classes, Classes, Classes]:
    """Return counts (classes,): true, predicted, and both; without the matrix of all pairs."""
    _check(true, predicted)
    classes = 1 + int(max(true.max(), predicted.max()))
    rows, columns, both = (
        np.bincount(values, minlength=classes).astype(np.int64)
        for values in (true, predicted, true[true == predicted])
    )
    return rows, columns, both


def _check(true: Classes, predicted: Classes) -> None:
    assert true.shape == predicted.shape
    assert len(true)


Numbers = NDArray[np.float64]


def pearson(true: Numbers, predicted: Numbers) -> float:
    """Return Pearson's correlation, -1 to 1.

    NaN for a constant side, a single example, or numbers that are not finite.
    """
    assert true.shape == predicted.shape
    if len(true) < 2 or _constant(true) or _constant(predicted):
        return math.nan
    if not (np.isfinite(true).all() and np.isfinite(predicted).all()):
        return math.nan
    product = np.dot(_unit(true), _unit(predicted))
    return float(np.clip(product, -1.0, 1.0)) + 0.0


def spearman(true: Numbers, predicted: Numbers) -> float:
    """Return Spearman's correlation; equal numbers have the mean of their ranks.

    NaN where `pearson` of the ranks is, and with a NaN on either side. Infinities have ranks.
    """
    return pearson(ranks(true), ranks(predicted))


def ranks(numbers: Numbers) -> Numbers:
    """Return the rank of each number, from 1; equal numbers have the mean of their ranks.

    All are NaN if a number is.
    """
    if np.isnan(numbers).any():
        return np.full(numbers.shape, math.nan)
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
Average = Literal["micro", "macro"]


def exact_match(true: Sets, predicted: Sets) -> float:
    """Return the share of the examples whose predicted set of classes equals the true one."""
    _check_sets(true, predicted)
    return float(np.mean(np.all(true == predicted, axis=1)))


def multi_label_f1(true: Sets, predicted: Sets, average: Average) -> float:
    """Return the F1 over all decisions, or its mean over labels.

    A label without true or predicted positives counts 0.
    """
    _check_sets(true, predicted)
    axis = {"micro": None, "macro": 0}[average]
    both = np.sum(true & predicted, axis=axis)
    return f1_of_counts(both, np.sum(true, axis=axis) + np.sum(predicted, axis=axis))


def f1_of_counts(both: ArrayLike, seen: ArrayLike) -> float:
    """Return the mean F1 of counts: true and predicted, and true plus predicted; 0 of none."""
    both, seen = np.asarray(both), np.asarray(seen)
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
    "matthews": matthews,
}
"""Metrics of class numbers (examples,); ``f1`` is that of class 1."""


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
    "f1_at_0": "F1 at 0",
}


def score_label(name: str) -> str:
    """Return the display name of a score, of one of the first k passages too: ``nDCG@10``."""
    known, at, cutoff = name.partition("@")
    return WORDS.get(known, known.replace("_", " ")) + at + cutoff


def percent(value: float) -> str:
    """Return a score in per cent."""
    return f"{100 * value:z.2f}"


def format_scores(scores: Mapping[str, float]) -> str:
    """Return scores in one line: ``accuracy 91.20 %, macro F1 90.87 %``."""
    return ", ".join(f"{score_label(name)} {percent(value)} %" for name, value in scores.items())


def format_mean(values: Sequence[float]) -> str:
    """Return mean and spread in per cent: ``91.20 ± 0.34``."""
    mean, spread = mean_and_spread(values)
    return percent(mean) + ("" if spread is None else f" ± {percent(spread)}")


Queries = Sequence[Numbers]


def mean_reciprocal_rank(relevance: Queries, scores: Queries) -> float:
    """Return the mean of the reciprocal rank of the first relevant passage."""
    return _mean(_reciprocal_rank, relevance, scores)


def mean_average_precision(relevance: Queries, scores: Queries) -> float:
    """Return the mean of the precisions at the ranks of the relevant passages."""
    return _mean(_average_precision, relevance, scores)


def ndcg(relevance: Queries, scores: Queries, k: int | None = None) -> float:
    """Return the discounted cumulative gain of the first `k` passages over the highest possible.

    The gain is the relevance itself, which is not negative; the discount is log2(1 + rank)
    (Järvelin and Kekäläinen 2002).
    """
    return _mean(lambda gains, order: _ndcg(gains, order, k), relevance, scores)


def _mean(score: Callable[[Numbers, Numbers], float], relevance: Queries, scores: Queries) -> float:
    assert len(relevance) == len(scores) > 0
    # NaN has no place in an order
    if any(np.isnan(query).any() for query in (*relevance, *scores)):
        return math.nan
    return math.fsum(map(score, relevance, scores)) / len(relevance)


def _groups(relevance: Numbers, scores: Numbers) -> Iterator[Numbers]:
    """Yield the relevance of the passages by groups of equal score, highest score first."""
    assert relevance.shape == scores.shape
    assert len(relevance)
    order = np.argsort(-scores, kind="stable")
    borders = np.flatnonzero(np.diff(scores[order])) + 1
    yield from np.split(relevance[order], borders)


def _reciprocal_rank(relevance: Numbers, scores: Numbers) -> float:
    before = 0
    for group in _groups(relevance, scores):
        size, relevant = len(group), int(np.sum(group > 0))
        if relevant:
            # the probability that the first of them is at each position of the group
            mean, none_yet = 0.0, 1.0
            for position in range(size - relevant + 1):
                probability = relevant / (size - position)
                mean += none_yet * probability / (before + position + 1)
                none_yet *= 1 - probability
            return mean
        before += size
    return 0.0


def _average_precision(relevance: Numbers, scores: Numbers) -> float:
    before, retrieved, total = 0, 0, 0.0
    for group in _groups(relevance, scores):
        size, relevant = len(group), int(np.sum(group > 0))
        positions = np.arange(size)
        # the expected number of relevant passages before a relevant one at each position
        earlier = retrieved + positions * (relevant - 1) / max(1, size - 1)
        total += float(np.sum((earlier + 1) / (before + positions + 1))) * relevant / size
        before, retrieved = before + size, retrieved + relevant
    return total / retrieved if retrieved else 0.0


def _ndcg(relevance: Numbers, scores: Numbers, k: int | None) -> float:
    assert np.all(relevance >= 0)
    discounts = 1 / np.log2(np.arange(len(relevance)) + 2)
    discounts[k if k is not None else len(relevance) :] = 0
    best = float(np.dot(np.sort(relevance)[::-1], discounts))
    if best == 0:
        return 0.0
    gain, before = 0.0, 0
    for group in _groups(relevance, scores):
        gain += float(np.mean(group) * np.sum(discounts[before : before + len(group)]))
        before += len(group)
    return gain / best


BINS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """A bin of predictions of nearly the same probability."""

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
                count=int(inside.sum()),
                confidence=float(probabilities[inside].mean()),
                accuracy=float(right[inside].mean()),
            )
        )
    error = sum(item.count * abs(item.accuracy - item.confidence) for item in results) / len(right)
    return Calibration(error=float(error), bins=tuple(results))


def error_by_chance(
    probabilities: NDArray[np.float64], bins: int = BINS, resamples: int = 200
) -> float:
    """Return the mean calibration error of answers that are right as often as their probabilities.

    It is above 0, and the larger the fewer answers there are (Bröcker and Smith 2007).
    """
    assert len(probabilities)
    number = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], probabilities)
    member = (number[:, None] == np.arange(bins)).astype(np.float64)
    random = np.random.default_rng(int(stream(Purpose.CALIBRATED_ANSWERS)))
    total = 0.0
    for _ in range(resamples):
        right = random.random(len(probabilities)) < probabilities
        total += float(np.abs((right - probabilities) @ member).sum()) / len(probabilities)
    return total / resamples
