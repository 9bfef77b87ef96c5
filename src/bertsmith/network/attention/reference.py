"""Attention as the equations have it, a sequence after another; slow, and its weights can be read.

Every other backend is tested against these few lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bertsmith.core.shapes import Heads


def attention_weights(
    query: Heads,
    key: Heads,
    lengths: Sequence[int],
    *,
    causal: bool = False,
    window: int | None = None,
) -> tuple[Tensor, ...]:
    """Return softmax(Q K' / sqrt(head)) of each sequence, (heads, length, length), rows by query.

    Vaswani et al. 2017, equation 1. With `causal` a token sees itself and those before it, with a
    `window` at most that many on either side.
    """
    weights = []
    for q, k in zip(query.split(list(lengths)), key.split(list(lengths)), strict=True):
        score = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
        position = torch.arange(len(q), device=q.device)
        ahead = position[None, :] - position[:, None]
        if causal:
            score = score.masked_fill(ahead > 0, -torch.inf)
        if window is not None:
            score = score.masked_fill(ahead.abs() > window, -torch.inf)
        weights.append(score.softmax(-1))
    return tuple(weights)


def weighted_values(
    weights: Sequence[Tensor], value: Heads, dropout: Callable[[Tensor], Tensor]
) -> Heads:
    """Return the sums of values that the weights make, (tokens, heads, head)."""
    values = value.split([weight.shape[-1] for weight in weights])
    parts = [
        torch.einsum("hqk,khd->qhd", dropout(weight).to(v.dtype), v)
        for weight, v in zip(weights, values, strict=True)
    ]
    return torch.cat(parts)
