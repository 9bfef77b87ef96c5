"""A number a text or pair: how alike two sentences are, how relevant a passage is to a query."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.grouping import group_means
from bertsmith.objectives.losses import Loss
from bertsmith.shapes import Hidden


@dataclass(frozen=True)
class Regress:
    """The squared error of a number, in units of the numbers' own `spread` around their `mean`.

    So the learning rate means the same whatever the numbers measure; the head's last layer has to
    be scaled in the end (`scaled`). Correct are those nearer to the truth than `mean` is.
    """

    mean: float = 0.0
    spread: float = 1.0

    def __call__(self, model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
        """The loss over the texts; the target's labels are (texts,)."""
        said = group_means(model.classify(hidden, batch), target.at, batch).float()[:, 0]
        truth = (target.labels.float() - self.mean) / self.spread
        right = ((said - truth).abs() < truth.abs()).sum()
        loss = F.mse_loss(said, truth, reduction="sum")
        return Loss(sum=loss, count=len(truth), correct=right)


@dataclass(frozen=True)
class Relevance:
    """Binary cross-entropy of a relevance in [0, 1] (Nogueira & Cho 2019, equation 1)."""

    def __call__(self, model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
        """The loss over the pairs; the target's labels are (pairs,)."""
        said = group_means(model.classify(hidden, batch), target.at, batch).float()[:, 0]
        truth = target.labels.float()
        loss = F.binary_cross_entropy_with_logits(said, truth, reduction="sum")
        return Loss(sum=loss, count=len(truth), correct=((said > 0) == (truth > 0.5)).sum())
