from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn.metrics as sklearn

from bertsmith.evaluation.metrics import Average, exact_match, multi_label_f1
from bounds import metric

AVERAGES: tuple[Average, ...] = ("micro", "macro")


@pytest.mark.parametrize("count", [90, pytest.param(3000, marks=pytest.mark.faults)])
def test_random_cases_equal_those_of_scikit_learn(count: int) -> None:
    with warnings.catch_warnings():
        # it warns of labels that never occur; its value is asked for all the same
        warnings.simplefilter("ignore")
        for number in range(count):
            random = np.random.default_rng(number)
            shape = (int(random.integers(1, 30)), int(random.integers(2, 7)))
            true = random.random(shape) < random.choice([0.0, 0.1, 0.5, 1.0])
            predicted = random.random(shape) < random.choice([0.0, 0.3, 1.0])
            predicted = np.where(random.random(shape) < 0.5, true, predicted)
            assert exact_match(true, predicted) == metric(sklearn.accuracy_score(true, predicted))
            average = AVERAGES[number % 2]
            expected = sklearn.f1_score(true, predicted, average=average, zero_division=0)
            found = multi_label_f1(true, predicted, average)
            assert found == metric(expected), (number, average)
