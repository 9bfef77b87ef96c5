"""Classification of a text or a pair of texts (Devlin et al. 2018, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.losses import Loss
from bertsmith.shapes import Hidden


@dataclass(frozen=True)
class Classify:
    """Cross-entropy of one class a sequence, optionally with smoothed labels."""

    smoothing: float = 0.0

    def __call__(self, model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
        """The loss over the sequences that carry a label."""
        return cross_entropy(
            model.classify(hidden, batch)[target.at], target.labels, self.smoothing
        )
