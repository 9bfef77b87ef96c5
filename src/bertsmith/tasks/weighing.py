"""Losses over labels: weights of rare classes, and label smoothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.config import Config


@dataclass(frozen=True, kw_only=True)
class LabelLoss(Config):
    """The options of a loss over labels."""

    class_weights: Literal["none", "balanced"] = "none"
    """Balanced weighs the classes so that rare ones count as much as common ones."""
    smoothing: float = 0.0
    """Share of each label that is spread over all labels."""


def balanced_weights(classes: NDArray[np.int64], count: int) -> tuple[float, ...]:
    """Return weights of `count` classes that make them count alike; their mean over examples is 1.

    `classes` are those of the examples, (examples,).
    """
    sizes = np.bincount(classes, minlength=count)
    present = int(np.count_nonzero(sizes))
    weights = len(classes) / (present * np.maximum(sizes, 1))
    return tuple(float(weight) for weight in weights)
