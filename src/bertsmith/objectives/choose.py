"""One of several options (Devlin et al. 2018, section 4.4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.grouping import in_rows, owners
from bertsmith.objectives.losses import Loss
from bertsmith.shapes import Hidden


@dataclass(frozen=True)
class Choose:
    """Cross-entropy of the right option among those of its question, any number of them."""

    def __call__(self, model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
        """The loss over the questions; a label is the number of the right option, from 0."""
        owner = owners(target.at, batch.sequences)
        place = torch.arange(batch.sequences, device=owner.device) - target.at[owner]
        scores = in_rows(model.choose(hidden, batch).float(), owner, place, len(target))
        return cross_entropy(scores, target.labels)
