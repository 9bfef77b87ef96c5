"""Prediction sets against the formulas of Angelopoulos and Bates (2021), and their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bertsmith.core.errors import ConfigError
from bertsmith.network.config import Conformal
from bertsmith.tasks.confidence import (
    calibrate,
    conformal_of,
    prediction_set,
    set_figures,
    set_threshold,
)

Shares = NDArray[np.float64]


def drawn(random: np.random.Generator, rows: int, classes: int) -> tuple[Shares, Shares]:
    """Probabilities of a model that is far too sure of itself, and the true classes."""
    logits = random.normal(size=(rows, classes))
    true = (logits + random.gumbel(size=logits.shape)).argmax(1)
    sure = np.exp(4 * logits)
    return sure / sure.sum(1, keepdims=True), true.astype(np.float64)


def test_a_training_that_has_failed_has_no_thresholds() -> None:
    assert conformal_of(np.array([0.3, np.nan] * 20)) is None


@pytest.mark.parametrize("examples", [1, 2, 9, 37, 100, 1999])
def test_thresholds_are_corrected_quantiles(examples: int) -> None:
    right = np.random.default_rng(examples).random(examples)
    found = conformal_of(right)
    assert found is not None
    for coverage, threshold in zip(found.coverages, found.thresholds, strict=True):
        # section 1: the quantile of the scores 1 - p, one of these, never between two
        level = np.ceil(round((examples + 1) * coverage, 6)) / examples
        score = np.quantile(1 - right, level - 1e-9, method="inverted_cdf")
        assert 1 - score - 1.01e-6 <= threshold <= 1 - score + 1e-12
    left_out = [item for item in (0.5, 0.9, 0.95, 0.99, 0.999) if item not in found.coverages]
    assert left_out == [
        item for item in (0.5, 0.9, 0.95, 0.99, 0.999) if round((examples + 1) * item, 6) > examples
    ]


@pytest.mark.parametrize("coverage", [0.6, 0.9])
def test_sets_hold_the_right_class_as_often_as_asked(coverage: float) -> None:
    draws, calibration, new, classes = 400, 59, 100, 5
    shares = []
    for seed in range(draws):
        answers, true = drawn(np.random.default_rng(seed), calibration + new, classes)
        kept = calibrate(true[:calibration, None], list(answers[:calibration]))
        threshold = set_threshold(kept, coverage)
        shares.append(
            set_figures(true[calibration:, None], list(answers[calibration:]), threshold).covered
        )
    # given the calibration the coverage has the Beta distribution of (k, n + 1 - k)
    n, k = calibration, int(np.ceil((calibration + 1) * coverage))
    expected = k / (n + 1)
    variance = expected * (1 - expected) / (n + 2)
    variance += expected * (1 - expected) / new
    assert expected >= coverage
    assert abs(np.mean(shares) - expected) < 4 * np.sqrt(variance / draws)
    # what the model itself calls 90 % sure is right far less often
    answers, true = drawn(np.random.default_rng(draws), 4000, classes)
    sure = answers.max(1) > 0.9
    assert (answers.argmax(1) == true)[sure].mean() < 0.8


def test_a_coverage_between_two_that_are_kept_takes_the_larger() -> None:
    kept = Conformal(examples=50, coverages=(0.5, 0.9, 0.95), thresholds=(0.8, 0.3, 0.1))
    assert set_threshold(kept, 0.9) == 0.3
    assert set_threshold(kept, 0.901) == 0.1
    assert prediction_set(np.array([0.1, 0.6, 0.3]), 0.3) == [1, 2]
    assert prediction_set(np.array([0.1, 0.6, 0.3]), 0.8) == []
    with pytest.raises(ConfigError, match=r"50 dev examples, which are too few .* with 99 on dev"):
        set_threshold(kept, 0.985)
    with pytest.raises(ConfigError, match="this one was not"):
        set_threshold(None, 0.9)
    assert conformal_of(np.array([], np.float64)) is None


def test_sets_of_labelled_rows_are_counted() -> None:
    answers = [np.array([0.7, 0.3]), np.array([0.5, 0.5]), np.array([0.2, 0.3, 0.2, 0.3])]
    found = set_figures(np.array([[0.0], [1.0], [0.0]]), answers, 0.4)
    assert found == pytest.approx((2 / 3, 1.0, 1 / 3, 1 / 3))
    assert "66.67 % of the questions, and 1.00 answers" in found.sentence("questions")
