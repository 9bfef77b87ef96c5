"""Ranking metrics: the positions of relevant passages when passages are ordered by score.

Each function takes, for every query, the relevance (passages,) and the score (passages,) of its
passages, and returns the mean over the queries; a query without a relevant passage counts 0. Ties
are averaged over all their orders (McSherry and Najork 2008), so the result does not depend on
the order of the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
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
