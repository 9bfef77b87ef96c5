"""Next-sentence prediction (Devlin et al. 2018, section 3.1, task 2)."""

from __future__ import annotations

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.losses import Loss
from bertsmith.shapes import Hidden


def next_sentence(model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
    """Cross-entropy of "is the next" (0) against "is a random one" (1), for sequences with both."""
    return cross_entropy(model.next_sentence(hidden, batch)[target.at], target.labels)
