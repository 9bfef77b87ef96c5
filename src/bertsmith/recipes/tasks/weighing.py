"""Weights that make rare classes count as much as common ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def balanced_weights(classes: NDArray[np.int64], count: int) -> tuple[float, ...]:
    """What makes `count` classes count alike; the mean weight of the examples (examples,) is 1."""
    sizes = np.bincount(classes, minlength=count)
    present = int(np.count_nonzero(sizes))
    weights = len(classes) / (present * np.maximum(sizes, 1))
    return tuple(float(weight) for weight in weights)
