from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from bertsmith.evaluation.metrics import calibration, error_by_chance
from bertsmith.recipes.finetune.report import calibration_note
from bounds import metric


def by_definition(probabilities: np.ndarray, right: np.ndarray, bins: int) -> float:
    error = 0.0
    for index in range(bins):
        inside = [
            number
            for number, probability in enumerate(probabilities)
            if index / bins < probability <= (index + 1) / bins or (probability == 0 == index)
        ]
        if inside:
            distance = np.mean(right[inside]) - np.mean(probabilities[inside])
            error += len(inside) / len(right) * abs(distance)
    return error


@pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.faults)])
def test_random_cases_equal_the_definition_and_the_curve_of_scikit_learn(count: int) -> None:
    for number in range(count):
        random = np.random.default_rng(number)
        bins = int(random.choice([2, 4, 8, 16]))  # whose borders are exact
        size = int(random.integers(1, 60))
        probabilities = random.random(size)
        if number % 3 == 0:
            probabilities = np.round(probabilities * 8) / 8
        if number % 10 == 0:
            probabilities[:] = random.choice([0.0, 0.5, 1.0])
        right = random.random(size) < random.choice([0.0, 0.7, 1.0])
        found = calibration(probabilities, right, bins)
        assert found.error == metric(by_definition(probabilities, right, bins))
        accuracies, confidences = calibration_curve(right, probabilities, n_bins=bins)
        assert [item.accuracy for item in found.bins] == pytest.approx(accuracies.tolist())
        assert [item.confidence for item in found.bins] == pytest.approx(confidences.tolist())
        assert sum(item.count for item in found.bins) == size


@pytest.mark.parametrize("size", [20, 200])
def test_a_calibration_error_is_shown_beside_that_of_chance(size: int) -> None:
    """A perfectly calibrated model had an error of a tenth on 20 rows, as if it were a bad one."""
    random = np.random.default_rng(size)
    probabilities = 0.5 + random.random(size) / 2
    errors = [
        by_definition(probabilities, random.random(size) < probabilities, 15) for _ in range(60)
    ]
    found = error_by_chance(probabilities)
    assert found == pytest.approx(float(np.mean(errors)), rel=0.12)
    note = calibration_note(probabilities, random.random(size) < probabilities)
    assert f"of a perfectly calibrated model have {found:.3f} on average" in note
