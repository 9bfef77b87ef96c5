"""Any number of classes a text: each is said or not, on its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.grouping import group_means
from bertsmith.objectives.losses import Loss
from bertsmith.shapes import Hidden


@dataclass(frozen=True)
class MultiLabel:
    """Binary cross-entropy of every label, summed over labels and averaged over them.

    `weights` (labels,) multiply the losses of labels that are there.
    """

    smoothing: float = 0.0
    weights: tuple[float, ...] = ()

    def __call__(self, model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
        """The loss over the texts; the target's labels are (texts, labels), 0 or 1."""
        logits = group_means(model.classify(hidden, batch), target.at, batch).float()
        truth = target.labels.float()
        weights = torch.tensor(self.weights, device=logits.device) if self.weights else None
        wanted = truth * (1 - self.smoothing) + self.smoothing / 2
        loss = F.binary_cross_entropy_with_logits(
            logits, wanted, pos_weight=weights, reduction="sum"
        )
        right = ((logits > 0) == (truth > 0.5)).all(-1).sum()
        return Loss(sum=loss / logits.shape[1], count=len(truth), correct=right)
