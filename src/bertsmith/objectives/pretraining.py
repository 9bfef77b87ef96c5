"""The objectives of pre-training: masked and left-to-right language models, pairs of texts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bertsmith.core.errors import ConfigError
from bertsmith.core.shapes import AtTargets
from bertsmith.network.batch import Batch, Target
from bertsmith.network.config import ModelConfig
from bertsmith.network.encoded import Encoded
from bertsmith.network.heads import MaskedLMHead
from bertsmith.network.model import Model
from bertsmith.network.shape_buckets import pad_targets
from bertsmith.objectives.cross_entropy import cross_entropy, linear_cross_entropy
from bertsmith.objectives.objective import Loss, Objective, SequenceTerm, TokenTerm
from bertsmith.objectives.replaced_tokens import GeneratorLM, ReplacedTokens


class MaskedLM(TokenTerm):
    """Cross-entropy of the original tokens, at the masked positions only."""

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the masked positions."""
        head = model.heads["masked_lm"]
        assert isinstance(head, MaskedLMHead)
        table = model.encoder.embeddings.tokens.weight
        features = head.features(encoded.rows(pad_targets(target.at)))
        return linear_cross_entropy(features, table, head.bias, target.labels)


class NextSentence(SequenceTerm):
    """Cross-entropy of "is the next" (0) against "is a random one" (1), for sequences with both.

    With other targets of "in order" (0) against "exchanged" (1): both tell whether B follows A.
    """

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the sequences of two segments."""
        return cross_entropy(model.next_sentence(encoded, batch)[target.at], target.labels)


# logits made at once; nearly every token is a target here, and all their logits fill the memory
_LOGITS = 2**25


class LeftToRight(TokenTerm):
    """Cross-entropy of the tokens that follow, read from the tokens before them.

    The head and its tied table are those of masked LM. The logits are made in slices, and made
    again in the backward pass.
    """

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss; `ConfigError` for an encoder that sees what follows."""
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

        losses = [
            checkpoint(part, *piece, use_reentrant=False, preserve_rng_state=False)
            for piece in zip(at.split(rows), target.labels.split(rows), strict=True)
        ]
        sums, correct = (torch.stack(each).sum() for each in zip(*losses, strict=True))
        return Loss(sum=sums, count=len(target), correct=correct)


PRETRAINING = Objective(
    {
        "masked_lm": MaskedLM(),
        "left_to_right": LeftToRight(),
        "next_sentence": NextSentence(),
        "sentence_order": NextSentence(),
    }
)
"""A batch's targets choose among these, so it serves whatever the sequences are made of."""


def objective_of(config: ModelConfig, *, seed: int) -> Objective:
    """Return the objective that trains the heads of a model, with new parameters of its terms."""
    if config.replaced_tokens:
        generator = GeneratorLM(config.encoder, seed=seed)
        return Objective({"masked_lm": generator, "replaced_tokens": ReplacedTokens()})
    return PRETRAINING
