"""An objective: a model and a batch become losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.losses import Loss, Losses
from bertsmith.shapes import Hidden

Term = Callable[[Model, Hidden, Batch, Target], Loss]


@dataclass(frozen=True)
class Objective:
    """Terms by the name of the target they predict; the encoder runs once for all of them."""

    terms: Mapping[str, Term]

    def __call__(self, model: Model, batch: Batch) -> Losses:
        """The loss of each term whose targets the batch carries."""
        hidden = model.encoder(batch)
        return Losses(
            parts={
                name: term(model, hidden, batch, batch.targets[name])
                for name, term in self.terms.items()
                if name in batch.targets
            }
        )


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Loss:
    """Cross-entropy in float32, summed: logits (targets, classes), labels (targets,).

    A target counts as correct when its logit is larger than every other; ties are wrong.
    """
    with torch.autocast(logits.device.type, enabled=False):
        wide = logits.float()
        loss = F.cross_entropy(wide, labels, reduction="sum", label_smoothing=smoothing)
        # amax is 25 times faster than argmax on a CPU
        shown, at = wide.detach(), labels[:, None]
        own = shown.gather(-1, at).squeeze(-1)
        correct = (own > shown.scatter(-1, at, -torch.inf).amax(-1)).sum()
    return Loss(sum=loss, count=len(labels), correct=correct)
