"""Masked language modelling (Devlin et al. 2018, section 3.1, task 1)."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812

from bertsmith.batches.batch import Batch, Target
from bertsmith.layers.evening import evened
from bertsmith.models.heads import MaskedLMHead
from bertsmith.models.model import Model
from bertsmith.objectives.cross_entropy import linear_cross_entropy
from bertsmith.objectives.losses import Loss
from bertsmith.shapes import Hidden


def masked_lm(model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
    """Cross-entropy of the original tokens, at the masked positions only."""
    head = model.heads["masked_lm"]
    assert isinstance(head, MaskedLMHead)
    table = model.encoder.embeddings.tokens.weight
    spare = 0 if hidden.is_cuda else evened(len(target)) - len(target)
    features = head.features(hidden[F.pad(target.at, (0, spare))])
    return linear_cross_entropy(features, table, head.bias, target.labels)
