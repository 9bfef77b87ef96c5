"""What an objective returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One objective's loss over the targets of a batch.

    `sum` is the loss summed over `count` targets, float32 with gradient; `correct` counts targets
    predicted right, without gradient.
    """

    sum: Tensor
    count: int
    correct: Tensor


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The losses of a batch by objective."""

    parts: Mapping[str, Loss]

    def total(self, counts: Mapping[str, int] | None = None) -> Tensor:
        """The sum of mean losses, a scalar.

        `counts` are the targets of all batches that share one step: with them, the totals of
        these batches add up to the loss of one large batch.
        """
        shares = [
            loss.sum / max(counts[name] if counts else loss.count, 1)
            for name, loss in self.parts.items()
        ]
        return torch.stack(shares).sum()
