"""What several sequences say of one thing: windows of a text, options of a question."""

from __future__ import annotations

import torch
from torch import Tensor

from bertsmith.batches.batch import Batch


def owners(at: Tensor, sequences: int) -> Tensor:
    """The group of each sequence, (sequences,), groups beginning at `at` (groups,), in order."""
    numbers = torch.arange(sequences, device=at.device)
    return torch.searchsorted(at, numbers, right=True) - 1


def group_means(values: Tensor, at: Tensor, batch: Batch) -> Tensor:
    """Means over the sequences of each group: (sequences, outputs) to (groups, outputs)."""
    if len(at) == batch.sequences:
        return values
    owner = owners(at, batch.sequences)
    sums = values.new_zeros(len(at), values.shape[1]).index_add(0, owner, values)
    return sums / owner.bincount(minlength=len(at))[:, None]


def in_rows(values: Tensor, owner: Tensor, place: Tensor, rows: int) -> Tensor:
    """Values (values,) in rows (rows, longest) by owner and place in the row, -inf elsewhere."""
    spread = values.new_full((rows, int(place.max()) + 1), -torch.inf)
    return spread.index_put((owner, place), values)
