"""How high the relevant passages of queries stand when they are ordered by score.

Each takes, for every query, the relevance (passages,) and the score (passages,) of its passages,
and returns the mean over the queries; one without a relevant passage counts 0. Passages of equal
score count as in every order of theirs, on average (McSherry and Najork 2008): a model that gives
all the same score has no luck from the order of the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Queries = Sequence[Numbers]


def mean_reciprocal_rank(relevance: Queries, scores: Queries) -> float:
    """The mean of 1 over the place of the first relevant passage."""
    return _mean(_reciprocal_rank, relevance, scores)


def mean_average_precision(relevance: Queries, scores: Queries) -> float:
    """The mean of the precisions at the places of the relevant passages."""
    return _mean(_average_precision, relevance, scores)


def ndcg(relevance: Queries, scores: Queries, k: int | None = None) -> float:
    """Discounted cumulative gain of the first `k` passages, as a share of the highest possible.

    The gain is the relevance itself, which is not negative; the discount is log2(1 + place)
    (Järvelin and Kekäläinen 2002).
    """
    return _mean(lambda gains, order: _ndcg(gains, order, k), relevance, scores)


def _mean(score: Callable[[Numbers, Numbers], float], relevance: Queries, scores: Queries) -> float:
    assert len(relevance) == len(scores) > 0
    return math.fsum(map(score, relevance, scores)) / len(relevance)


def _groups(relevance: Numbers, scores: Numbers) -> Iterator[Numbers]:
    """The relevance of the passages, those of equal score together, the highest score first."""
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
            # the chance that the first of them stands at each place of the group
            mean, none_yet = 0.0, 1.0
            for place in range(size - relevant + 1):
                chance = relevant / (size - place)
                mean += none_yet * chance / (before + place + 1)
                none_yet *= 1 - chance
            return mean
        before += size
    return 0.0


def _average_precision(relevance: Numbers, scores: Numbers) -> float:
    before, found, total = 0, 0, 0.0
    for group in _groups(relevance, scores):
        size, relevant = len(group), int(np.sum(group > 0))
        places = np.arange(size)
        # of a relevant passage at each place: how many stand before it, on average
        earlier = found + places * (relevant - 1) / max(1, size - 1)
        total += float(np.sum((earlier + 1) / (before + places + 1))) * relevant / size
        before, found = before + size, found + relevant
    return total / found if found else 0.0


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
