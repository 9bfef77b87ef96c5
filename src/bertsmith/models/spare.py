"""More tokens than a batch has, so that products come in usual sizes (layers/evening.py)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bertsmith.batches.batch import Batch
from bertsmith.layers.evening import FEW, evened


def with_spare_sequence(batch: Batch) -> Batch:
    """The batch with one sequence more where that gives it a usual number of tokens."""
    spare = evened(batch.tokens, FEW) - batch.tokens
    if not spare:
        return batch
    more = batch.ids.new_zeros(spare)
    return replace(
        batch,
        ids=torch.cat([batch.ids, more]),
        segments=torch.cat([batch.segments, more]),
        positions=torch.cat([batch.positions, more]),
        offsets=torch.cat([batch.offsets, batch.offsets[-1:] + spare]),
        lengths=(*batch.lengths, spare),
    )


def with_spare_places(read: Tensor, tokens: int) -> Tensor:
    """The places with some of the others where that gives a usual number of them."""
    spare = evened(len(read)) - len(read)
    if read.is_cuda or not spare:
        return read
    unread = torch.ones(tokens, dtype=torch.bool)
    unread[read] = False
    return torch.cat([read, unread.nonzero().flatten()[:spare]]).sort().values
