"""The bounds of the tests themselves: what they let pass, and what not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import bounds

TESTS = Path(__file__).parent
# the table "Numbers" of the design, and what was derived from it
BOUNDS: dict[Callable[..., None], float] = {
    bounds.close_to_transformers: 1e-5,
    bounds.close_when_regrouped: 2e-6,
    bounds.close_unit_vectors: 1e-6,
    bounds.close_to_float64: 2e-6,
    bounds.close_gradients: 1e-5,
    bounds.close_after_training: 2e-5,
}


@pytest.mark.parametrize("check", BOUNDS)
@pytest.mark.parametrize("largest", [0.001, 1.0, 50.0])
def test_a_bound_grows_with_the_largest_value_and_no_further(
    check: Callable[..., None], largest: float
) -> None:
    expected = torch.tensor([[largest, -0.0001, 0.0]], dtype=torch.float64)
    allowed = BOUNDS[check] * max(1.0, largest)
    check(expected + 0.99 * allowed, expected)
    for far in (1.01 * allowed, -1.01 * allowed, float("nan"), float("inf")):
        found = expected.clone()
        found[0, 2] += far
        with pytest.raises(AssertionError):
            check(found, expected)


@pytest.mark.parametrize("check", BOUNDS)
def test_shapes_have_to_be_equal_and_something_has_to_be_there(check: Callable[..., None]) -> None:
    with pytest.raises(AssertionError):
        check(np.zeros(3), np.zeros((1, 3)))
    with pytest.raises(AssertionError):
        check(np.zeros(0), np.zeros(0))


def test_losses_and_metrics() -> None:
    bounds.close_losses(torch.tensor(2.00001), 2.0)
    with pytest.raises(AssertionError):
        bounds.close_losses(2.00003, 2.0)
    assert bounds.metric(0.5) == 0.5 + 9e-13
    assert bounds.metric(1000) != 1000 + 2e-12
    assert bounds.metric((0.5, 0.25)) != (0.5, 0.25 + 2e-12)


def test_bounds_of_float32_are_written_here_alone() -> None:
    """Literals like `< 1e-6` hold on the chip where they were tried; they belong into bounds.py."""
    literal = re.compile(r"<=? \d(\.\d+)?e-[5-7]\b|[ar]tol=\d(\.\d+)?e-[5-7]\b")
    found = [
        f"{path.relative_to(TESTS)}:{number}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.name != Path(__file__).name
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if literal.search(line)
    ]
    assert found == []
