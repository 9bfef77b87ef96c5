"""What stands on an encoder: the pooler and the prediction heads."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.shapes import AtTargets, Hidden, Logits, Offsets, Pooled, Table


class Pooler(nn.Module):
    """The first token's hidden state through a dense layer and tanh (Devlin et al. 2018: C)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)

    def forward(self, hidden: Hidden, starts: Offsets) -> Pooled:
        """From (tokens, hidden) and where sequences begin, (sequences,), to (sequences, hidden)."""
        return self.dense(hidden[starts]).tanh()  # type: ignore[no-any-return]


class MaskedLMHead(nn.Module):
    """Predicts token ids; its output matrix is the token embedding table (tied), plus a bias.

    `width` is that of the table, the encoder's `hidden` but in an ALBERT.
    """

    def __init__(
        self, hidden: int, width: int, vocabulary: int, norm_epsilon: float, approximate: str
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.approximate = approximate

    def forward(self, hidden: AtTargets, table: Table) -> Logits:
        """Logits (targets, vocabulary) of the tokens at the positions given, (targets, hidden)."""
        return F.linear(self.features(hidden), table, self.bias)

    def features(self, hidden: AtTargets) -> Tensor:
        """What the table is multiplied with, as wide as it."""
        return self.norm(F.gelu(self.dense(hidden), approximate=self.approximate))  # type: ignore[no-any-return]
