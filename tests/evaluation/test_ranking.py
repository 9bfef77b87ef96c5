from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations

import numpy as np
import pytest
import sklearn.metrics as sklearn

from bertsmith.evaluation.metrics import mean_average_precision, mean_reciprocal_rank, ndcg
from bounds import metric

Numbers = np.ndarray
Pure = Callable[[list[float]], float]


def reciprocal_rank(ordered: list[float]) -> float:
    return next((1 / place for place, gain in enumerate(ordered, 1) if gain > 0), 0.0)


def average_precision(ordered: list[float]) -> float:
    found = [place for place, gain in enumerate(ordered, 1) if gain > 0]
    return sum(n / place for n, place in enumerate(found, 1)) / max(1, len(found))


def over_all_orders(relevance: Numbers, scores: Numbers, score: Pure) -> float:
    """The mean of a score over every order of the passages that their scores allow."""
    orders = [
        order
        for order in permutations(range(len(scores)))
        if all(scores[a] >= scores[b] for a, b in pairwise(order))
    ]
    return float(np.mean([score([relevance[index] for index in order]) for order in orders]))


def queries(number: int, longest: int) -> tuple[list[Numbers], list[Numbers]]:
    random = np.random.default_rng(number)
    relevance, scores = [], []
    for _ in range(int(random.integers(1, 4))):
        size = int(random.integers(1, longest))
        relevance.append(random.integers(0, random.integers(1, 4), size).astype(float))
        ties = random.integers(0, random.integers(1, 4), size).astype(float)
        scores.append(ties if random.random() < 0.5 else random.normal(size=size))
    return relevance, scores


def test_a_thousand_cases_equal_the_mean_over_all_orders() -> None:
    for number in range(1000):
        relevance, scores = queries(number, 6)
        pairs = list(zip(relevance, scores, strict=True))
        for found, pure in (
            (mean_reciprocal_rank(relevance, scores), reciprocal_rank),
            (mean_average_precision(relevance, scores), average_precision),
        ):
            expected = np.mean([over_all_orders(*pair, pure) for pair in pairs])
            assert found == metric(expected), number


@pytest.mark.parametrize("count", [90, pytest.param(3000, marks=pytest.mark.faults)])
def test_random_ndcgs_equal_those_of_scikit_learn(count: int) -> None:
    for number in range(count):
        relevance, scores = queries(number, 30)
        k = None if number % 3 == 0 else 1 + number % 10
        expected = [
            sklearn.ndcg_score([one], [other], k=k) if len(one) > 1 else float(one[0] > 0)
            for one, other in zip(relevance, scores, strict=True)
        ]
        assert ndcg(relevance, scores, k) == metric(np.mean(expected)), number


def test_average_precision_equals_that_of_scikit_learn_without_ties() -> None:
    random = np.random.default_rng(5)
    for size in (*range(2, 40), *range(40, 200, 7)):
        relevance = (random.random(size) < 0.3).astype(float)
        relevance[0] = 1
        scores = random.permutation(size).astype(float)
        expected = sklearn.average_precision_score(relevance, scores)
        found = mean_average_precision([relevance], [scores])
        assert found == metric(expected)


def test_equal_scores_gain_nothing_from_the_order_of_the_file() -> None:
    first, last = np.array([1.0, 0, 0, 0]), np.array([0, 0, 0, 1.0])
    same = np.zeros(4)
    for score in (mean_reciprocal_rank, mean_average_precision, ndcg):
        assert score([first], [same]) == metric(score([last], [same]))
        assert score([first], [same]) < 0.7


@pytest.mark.parametrize("score", [mean_reciprocal_rank, mean_average_precision, ndcg])
def test_a_passage_whose_score_is_nan_leaves_no_score(score: Callable[..., float]) -> None:
    relevance = [np.array([1.0, 0.0]), np.array([0.0, 1.0, 0.0])]
    assert score(relevance, [np.array([2.0, 1.0]), np.array([0.0, 1.0, 0.0])]) == 1
    for odd in ([0.0, 1.0, np.nan], [np.nan, 1.0, 0.0], [np.nan, np.nan, np.nan]):
        assert np.isnan(score(relevance, [np.array([2.0, 1.0]), np.array(odd)]))
