"""The tokens of each sequence as one vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from bertsmith.shapes import Hidden, Offsets, Vectors

Pooling = Literal["cls", "max", "mean", "mean-sqrt-length", "weighted-mean", "last-token"]


def pooled(kinds: Sequence[Pooling], hidden: Hidden, offsets: Offsets) -> Vectors:
    """One vector a sequence, (sequences, kinds x hidden): what each kind makes of it, end to end.

    `hidden` is (tokens, hidden), `offsets` (sequences + 1,); special tokens count as others do.
    """
    return torch.cat([POOLINGS[kind](hidden, offsets) for kind in kinds], dim=1)


def _first(hidden: Tensor, offsets: Tensor) -> Tensor:
    return hidden[offsets[:-1]]


def _last(hidden: Tensor, offsets: Tensor) -> Tensor:
    return hidden[offsets[1:] - 1]


def _largest(hidden: Tensor, offsets: Tensor) -> Tensor:
    return _reduced(hidden, "max", offsets)


def _mean(hidden: Tensor, offsets: Tensor) -> Tensor:
    return _reduced(hidden, "mean", offsets)


def _mean_by_root(hidden: Tensor, offsets: Tensor) -> Tensor:
    return _reduced(hidden, "sum", offsets) / offsets.diff().sqrt()[:, None]


def _weighted_mean(hidden: Tensor, offsets: Tensor) -> Tensor:
    """The mean by place from 1, so that later tokens count more (Muennighoff 2022, equation 1)."""
    lengths = offsets.diff()
    starts = offsets[:-1].repeat_interleave(lengths, output_size=len(hidden))
    place = torch.arange(len(hidden), device=hidden.device) - starts + 1
    total = (lengths * (lengths + 1) / 2)[:, None]
    return _reduced(hidden * place[:, None], "sum", offsets) / total


def _reduced(hidden: Tensor, how: str, offsets: Tensor) -> Tensor:
    reduced: Tensor = torch.segment_reduce(hidden, how, offsets=offsets, axis=0)
    return reduced


POOLINGS: dict[Pooling, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": _first,
    "max": _largest,
    "mean": _mean,
    "mean-sqrt-length": _mean_by_root,
    "weighted-mean": _weighted_mean,
    "last-token": _last,
}
"""Kinds of pooling by name, in the order in which sentence-transformers puts several end to end."""
