"""Left-to-right language modelling, the "LTR" of Devlin et al. 2018, section 5.1."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bertsmith.batches.batch import Batch, Target
from bertsmith.errors import ConfigError
from bertsmith.models.model import Model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.losses import Loss
from bertsmith.shapes import AtTargets, Hidden

# logits made at once; nearly every token is a target here, and all their logits fill the memory
_LOGITS = 2**25


def left_to_right(model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
    """Cross-entropy of the tokens that follow, read from the tokens before them.

    The head and its tied table are those of masked LM. The logits are made in slices, and made
    again in the backward pass. Raises `ConfigError` for an encoder that sees what follows.
    """
    config = model.encoder.config
    if not config.causal:
        raise ConfigError("an encoder that reads from left to right must be causal")
    at = hidden[target.at]
    rows = max(1, _LOGITS // config.vocabulary)
    if len(at) <= rows:
        return cross_entropy(model.masked_lm(at), target.labels)

    def part(hidden: AtTargets, labels: Tensor) -> tuple[Tensor, Tensor]:
        loss = cross_entropy(model.masked_lm(hidden), labels)
        return loss.sum, loss.correct

    pieces = zip(at.split(rows), target.labels.split(rows), strict=True)
    losses = [
        checkpoint(part, *piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces
    ]
    sums, correct = (torch.stack(each).sum() for each in zip(*losses, strict=True))
    return Loss(sum=sums, count=len(target), correct=correct)
