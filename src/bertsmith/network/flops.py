"""Floating-point operations that a model needs for a batch, counted from its sizes.

A multiplication and an addition are two operations. Counted are the matrix products: what norms,
activations and the softmax add is left out, as is usual (Chowdhery et al. 2022, appendix B). Only
work that the result needs is counted: a head works where it has something to predict, and after
the attention of the last layer nothing is needed of a token that no head reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bertsmith.network.batch import Batch
from bertsmith.network.config import READS_SEQUENCE, EncoderConfig, ModelConfig, reads_pooler


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The quantities of a batch that determine its number of operations."""

    tokens: int
    """Tokens of all sequences."""
    pairs: int
    """Pairs of tokens of one sequence: the sum of squared lengths, causal or not."""
    near_pairs: int | None = None
    """Those within the window of layers whose attention is local; None for all."""
    targets: int = 0
    """Positions at which a token is predicted."""
    sequences: int = 0
    """Sequences whose first token a pooler reads."""
    last_tokens: int | None = None
    """Tokens whose last hidden state is needed; None for all."""
    last_pairs: int | None = None
    """Pairs of these and the tokens of their sequences; None for all."""
    last_near_pairs: int | None = None
    """Those within the window; None for all."""


def forward_flops(config: ModelConfig, work: Work) -> float:
    """Return the operations of one forward pass."""
    encoder = config.encoder
    last = work.tokens if work.last_tokens is None else work.last_tokens
    *local_pairs, last_pairs = _seen_pairs(encoder, work)
    flops = sum(_layer_flops(encoder, work.tokens, work.tokens, pairs) for pairs in local_pairs)
    flops += _layer_flops(encoder, work.tokens, last, last_pairs)
    width = encoder.embedding or encoder.hidden
    if encoder.embedding is not None:
        flops += 2.0 * work.tokens * width * encoder.hidden
    if config.masked_lm:
        flops += 2.0 * work.targets * width * (encoder.hidden + encoder.vocabulary)
    if config.replaced_tokens:
        flops += 2.0 * work.tokens * encoder.hidden * (encoder.hidden + 1)
    read = work.sequences if config.head in READS_SEQUENCE else last
    if config.pooler:
        by_token = reads_pooler(config.head, encoder) and config.head not in READS_SEQUENCE
        pooled = last if by_token else work.sequences
        flops += (
            2.0
            * encoder.hidden
            * (pooled * encoder.hidden + 2 * work.sequences * config.next_sentence)
        )
    flops += 2.0 * read * encoder.hidden * config.outputs
    return flops


def training_flops(config: ModelConfig, work: Work) -> float:
    """Return the operations of a forward and a backward pass, which needs twice the forward's."""
    return 3 * forward_flops(config, work)


def work_of(batch: Batch, *, window: int | None = None, last_needed: bool = False) -> Work:
    """Return the quantities of a batch that determine its operations; `window` is the encoder's.

    With `last_needed`, the last layer is counted at the tokens that a target or a pooler reads.
    """
    pairs = sum(length * length for length in batch.lengths)
    predicted = ("masked_lm", "left_to_right")
    at = [batch.targets[name].positions for name in predicted if name in batch.targets]
    targets = sum(len(item) for item in at)
    work = Work(tokens=batch.tokens, pairs=pairs, targets=targets, sequences=batch.sequences)
    if window is not None:
        every = torch.arange(batch.tokens, device=batch.ids.device)
        work = replace(work, near_pairs=_local_pairs(batch, every, window // 2))
    if not last_needed or "replaced_tokens" in batch.targets:
        return work
    read = torch.cat([*at, batch.starts]).unique()
    owner = torch.bucketize(read, batch.offsets, right=True) - 1
    lengths = torch.tensor(batch.lengths, device=read.device)
    local_pairs = None if window is None else _local_pairs(batch, read, window // 2)
    last_pairs = int(lengths[owner].sum())
    return replace(work, last_tokens=len(read), last_pairs=last_pairs, last_near_pairs=local_pairs)


def _local_pairs(batch: Batch, positions: Tensor, reach: int) -> int:
    """Return the pairs of the tokens `positions` and those of their sequence up to `reach` away."""
    owner = torch.bucketize(positions, batch.offsets, right=True) - 1
    before = positions - batch.offsets[owner]
    after = batch.offsets[owner + 1] - 1 - positions
    return int((before.clamp(max=reach) + after.clamp(max=reach) + 1).sum())


def _seen_pairs(config: EncoderConfig, work: Work) -> list[int]:
    """Return the pairs of tokens of which one sees the other, by layer."""
    near = work.pairs if work.near_pairs is None else work.near_pairs
    pairs = [near if n % config.global_every else work.pairs for n in range(config.layers)]
    local = bool((config.layers - 1) % config.global_every)
    last = work.last_near_pairs if local else work.last_pairs
    return pairs if last is None else [*pairs[:-1], last]


def _layer_flops(config: EncoderConfig, tokens: int, needed: int, pairs: int) -> float:
    """Return the operations of a layer: keys and values of all tokens, the rest of those needed."""
    hidden = config.hidden
    keys_values = 2.0 * tokens * 2 * hidden**2
    others = 2.0 * needed * (2 * hidden**2 + (2 + config.gated) * hidden * config.feed_forward)
    return keys_values + others + 2.0 * pairs * 2 * hidden
