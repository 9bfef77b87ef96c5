"""Left-to-right language modelling, the "LTR" of Devlin et al. 2018, section 5.1."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bertsmith.core.errors import ConfigError
from bertsmith.core.shapes import AtTargets
from bertsmith.network.batch import Batch, Target
from bertsmith.network.encoded import Encoded
from bertsmith.network.heads import MaskedLMHead
from bertsmith.network.model import Model
from bertsmith.network.shape_buckets import pad_targets
from bertsmith.objectives.cross_entropy import cross_entropy, linear_cross_entropy
from bertsmith.objectives.objective import Loss, Objective


def masked_lm(model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
    """Cross-entropy of the original tokens, at the masked positions only."""
    head = model.heads["masked_lm"]
    assert isinstance(head, MaskedLMHead)
    table = model.encoder.embeddings.tokens.weight
    features = head.features(encoded.rows(pad_targets(target.at)))
    return linear_cross_entropy(features, table, head.bias, target.labels)


def next_sentence(model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
    """Cross-entropy of "is the next" (0) against "is a random one" (1), for sequences with both."""
    return cross_entropy(model.next_sentence(encoded, batch)[target.at], target.labels)


def sentence_order(model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
    """Cross-entropy of "in order" (0) against "exchanged" (1), for sequences of two segments.

    The head is that of next sentence, as both tell whether B is what follows A.
    """
    return next_sentence(model, encoded, batch, target)


# logits made at once; nearly every token is a target here, and all their logits fill the memory
_LOGITS = 2**25


def left_to_right(model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
    """Cross-entropy of the tokens that follow, read from the tokens before them.

    The head and its tied table are those of masked LM. The logits are made in slices, and made
    again in the backward pass. Raises `ConfigError` for an encoder that sees what follows.
    """
    config = model.encoder.config
    if not config.causal:
        raise ConfigError("an encoder that reads from left to right must be causal")
    at = encoded.rows(target.at)
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


PRETRAINING = Objective(
    {
        "masked_lm": masked_lm,
        "left_to_right": left_to_right,
        "next_sentence": next_sentence,
        "sentence_order": sentence_order,
    },
    at_targets=frozenset({"masked_lm", "left_to_right"}),
)
"""A batch's targets choose among these, so it serves whatever the sequences are made of."""
