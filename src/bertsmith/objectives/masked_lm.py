"""Masked language modelling (Devlin et al. 2018, section 3.1, task 1)."""

from __future__ import annotations

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.losses import Loss
from bertsmith.objectives.objective import cross_entropy
from bertsmith.shapes import Hidden


def masked_lm(model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
    """Cross-entropy of the original tokens, at the masked positions only."""
    return cross_entropy(model.masked_lm(hidden[target.at]), target.labels)
