"""Floating-point operations that a model needs for a batch, counted from its sizes.

A multiplication and an addition are two operations. Counted are the matrix products: what norms,
activations and the softmax add is left out, as is usual (Chowdhery et al. 2022, appendix B). Only
work that the result needs is counted: a head works where it has something to predict, and after
the attention of the last layer nothing is needed of a token that no head reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from bertsmith.batches.batch import Batch
from bertsmith.models.encoder import EncoderConfig
from bertsmith.models.heads import READS_FIRST
from bertsmith.models.model import ModelConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What of a batch decides how many operations it takes."""

    tokens: int
    """Tokens of all sequences."""
    pairs: int
    """Pairs of tokens of one sequence: the sum of squared lengths, causal or not."""
    targets: int = 0
    """Positions at which a token is predicted."""
    sequences: int = 0
    """Sequences whose first token a pooler reads."""
    last_tokens: int | None = None
    """Tokens whose last hidden state is needed; None for all."""
    last_pairs: int | None = None
    """Pairs of these and the tokens of their sequences; None for all."""


def forward_flops(config: ModelConfig, work: Work) -> float:
    """Operations of one forward pass."""
    encoder = config.encoder
    last = work.tokens if work.last_tokens is None else work.last_tokens
    last_pairs = work.pairs if work.last_pairs is None else work.last_pairs
    whole = _layer_flops(encoder, work.tokens, work.tokens, work.pairs)
    flops = (encoder.layers - 1) * whole
    flops += _layer_flops(encoder, work.tokens, last, last_pairs)
    width = encoder.embedding or encoder.hidden
    if encoder.embedding is not None:
        flops += 2.0 * work.tokens * width * encoder.hidden
    if config.masked_lm:
        flops += 2.0 * work.targets * width * (encoder.hidden + encoder.vocabulary)
    if config.pooler:
        flops += 2.0 * work.sequences * encoder.hidden * (encoder.hidden + 2 * config.next_sentence)
    read = work.sequences if config.head in READS_FIRST else last
    flops += 2.0 * read * encoder.hidden * config.outputs
    return flops


def training_flops(config: ModelConfig, work: Work) -> float:
    """Operations of a forward and a backward pass; the backward pass needs twice the forward's."""
    return 3 * forward_flops(config, work)


def work_of(batch: Batch, *, last_needed: bool = False) -> Work:
    """What of a batch decides its operations.

    With `last_needed`, the last layer is counted at the places that a target or a pooler reads.
    """
    pairs = sum(length * length for length in batch.lengths)
    predicted = ("masked_lm", "left_to_right")
    at = [batch.targets[name].at for name in predicted if name in batch.targets]
    targets = sum(len(each) for each in at)
    work = Work(tokens=batch.tokens, pairs=pairs, targets=targets, sequences=batch.sequences)
    if not last_needed:
        return work
    read = torch.cat([*at, batch.starts]).unique()
    owner = torch.bucketize(read, batch.offsets, right=True) - 1
    lengths = torch.tensor(batch.lengths, device=read.device)
    return replace(work, last_tokens=len(read), last_pairs=int(lengths[owner].sum()))


def _layer_flops(config: EncoderConfig, tokens: int, needed: int, pairs: int) -> float:
    """One layer: keys and values of all tokens, everything else of those needed."""
    hidden = config.hidden
    keys_values = 2.0 * tokens * 2 * hidden**2
    others = 2.0 * needed * (2 * hidden**2 + 2 * hidden * config.feed_forward)
    return keys_values + others + 2.0 * pairs * 2 * hidden
