"""[CLS] at another position than the first.

Attention sees the order of tokens by their position vectors alone, so a [CLS] that has the position
of the last token, and the others one less than before, is a [CLS] at the end of the sequence,
wherever its row stands in a batch: reading from both sides, nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from ablations.cells import ClsPosition
from bertsmith.network.batch import Batch
from bertsmith.network.encoder import Encoder


def moved(batch: Batch, place: ClsPosition) -> Batch:
    """Return the batch with the first token of each sequence at another position."""
    return replace(batch, positions=positions_of(batch, place))


def positions_of(batch: Batch, place: ClsPosition) -> Tensor:
    """Return positions (tokens,) as if the first token of each sequence stood elsewhere."""
    if place == "first":
        return batch.positions
    lengths = batch.offsets.diff()
    ends = (lengths - 1).repeat_interleave(lengths, output_size=batch.tokens)
    return torch.where(batch.positions == 0, ends, batch.positions - 1)


@contextmanager
def cls_at(place: ClsPosition) -> Iterator[None]:
    """Let every encoder of this process read [CLS] at a position, in training and answering."""
    if place == "first":
        yield
        return

    def move(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not isinstance(module, Encoder):
            return None
        return (moved(inputs[0], place), *inputs[1:])

    # torch's annotation leaves out hooks that change the input
    handle = register_module_forward_pre_hook(move)  # type: ignore[arg-type]
    try:
        yield
    finally:
        handle.remove()
