"""A label for each word, read at its first piece (Devlin et al. 2018, section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.losses import Loss
from bertsmith.shapes import Hidden


@dataclass(frozen=True)
class Tag:
    """Cross-entropy of the labels of words; the head works at these tokens only."""

    smoothing: float = 0.0
    weights: tuple[float, ...] = ()

    def __call__(self, model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
        """The loss over the words; the target lies at their first pieces."""
        logits = model.tag(hidden.index_select(0, target.at))
        weights = torch.tensor(self.weights, device=logits.device) if self.weights else None
        return cross_entropy(logits, target.labels, self.smoothing, weights)
