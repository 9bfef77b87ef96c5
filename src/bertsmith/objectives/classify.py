"""Classification of a text or a pair of texts (Devlin et al. 2018, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.grouping import group_means
from bertsmith.objectives.losses import Loss
from bertsmith.shapes import Hidden


@dataclass(frozen=True)
class Classify:
    """Cross-entropy of one class a text, optionally with smoothed labels and weighted classes.

    `weights` (labels,) multiply the losses of texts of each class. What several windows of a text
    say is averaged before the softmax.
    """

    smoothing: float = 0.0
    weights: tuple[float, ...] = ()

    def __call__(self, model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
        """The loss over the texts that begin at the target's sequences."""
        logits = group_means(model.classify(hidden, batch), target.at, batch)
        weights = torch.tensor(self.weights, device=logits.device) if self.weights else None
        return cross_entropy(logits, target.labels, self.smoothing, weights)
