"""The options of losses over labels: weights of rare classes, and label smoothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertsmith.core.config import Config


@dataclass(frozen=True, kw_only=True)
class LabelLoss(Config):
    """The options of a loss over labels."""

    class_weights: Literal["none", "balanced"] = "none"
    """Balanced weighs the classes so that rare ones count as much as common ones."""
    smoothing: float = 0.0
    """Share of each label that is spread over all labels."""
