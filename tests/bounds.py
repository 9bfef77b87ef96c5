"""How far two computations of the same numbers may be apart: a function for each row of the table
"Numbers" of the design, and for what follows from it.

A bound has to hold on every chip. Libraries take other kernels for another instruction set, another
number of threads or another number of rows, and so add up in another order: what differs is a few
units in the last place of the *largest* value that was added up, not of the value itself. That is
why bounds grow with the largest value, and why none asks for equal bits of products of different
shapes. `tests/other_order.py` makes products add up in another order for each number of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Numbers = Tensor | ArrayLike


def close_to_transformers(found: Numbers, expected: Numbers, what: object = "") -> None:
    """Hidden states, logits and vectors against transformers with the same weights, float32."""
    check(found, expected, 1e-5, what)


def close_when_regrouped(found: Numbers, expected: Numbers, what: object = "") -> None:
    """The same sequences in other batches, or only some of their tokens, through one model."""
    check(found, expected, 2e-6, what)


def close_unit_vectors(found: Numbers, expected: Numbers, what: object = "") -> None:
    """Vectors of length one, or shares that add up to one, of the same text in other batches."""
    check(found, expected, 1e-6, what)


def close_to_float64(found: Numbers, expected: Numbers, what: object = "") -> None:
    """One operation in float32, such as attention or a norm, against the same in float64."""
    check(found, expected, 2e-6, what)


def close_gradients(found: Numbers, expected: Numbers, what: object = "") -> None:
    """Gradients of one weight or input, summed over all tokens of a batch."""
    check(found, expected, 1e-5, what)


def close_in_float64(found: Numbers, expected: Numbers, what: object = "") -> None:
    """Losses and gradients in float64, against the same formulas written otherwise in float64."""
    check(found, expected, 1e-6, what)


def close_statistics(found: Numbers, expected: Numbers, what: object = "") -> None:
    """Statistics and shares, sums of many float32 numbers, against the formula or other batches."""
    check(found, expected, 1e-5, what)


def close_after_training(found: Numbers, expected: Numbers, what: object = "") -> None:
    """Weights after a few steps whose gradients were added up in another order, in float32."""
    check(found, expected, 2e-5, what)


def close_in_kernels(found: Numbers, expected: Numbers, precision: str, what: object = "") -> None:
    """Hidden states of the native encoder against the network in float64, three to six layers.

    What bf16 and int8 round off is of the size of a hidden state's largest value, not of its own.
    """
    check(found, expected, {"fp32": 1e-5, "bf16": 0.03, "int8": 0.1}[precision], (precision, what))


def close_losses(found: float | Tensor, expected: float | Tensor, what: object = "") -> None:
    """Sums and means over the targets of a batch, relative to themselves."""
    mine, other = (float(_float64(item)) for item in (found, expected))
    assert mine == pytest.approx(other, rel=1e-5), what


def metric(expected: Any, *, nan_ok: bool = False) -> Any:  # noqa: ANN401
    """What a metric has to equal that the official scorer or scikit-learn computed in float64."""
    return pytest.approx(expected, rel=0, abs=1e-12, nan_ok=nan_ok)


def check(found: Numbers, expected: Numbers, bound: float, what: object = "") -> None:
    """Fail unless the farthest two numbers are within `bound` times max(1, the largest expected).

    Shapes have to be equal, and all numbers finite.
    """
    mine, other = _float64(found), _float64(expected)
    assert mine.shape == other.shape, what
    assert mine.size > 0, what
    assert np.isfinite(mine).all(), what
    distance = float(np.abs(mine - other).max())
    allowed = bound * max(1.0, float(np.abs(other).max()))
    assert distance <= allowed, f"{distance:.2e} apart, {allowed:.2e} allowed: {what}"


def _float64(numbers: Numbers) -> NDArray[np.float64]:
    if isinstance(numbers, Tensor):
        return numbers.detach().to(torch.float64).cpu().numpy()
    return np.asarray(numbers, dtype=np.float64)
