"""Token, segment and position embeddings."""

from __future__ import annotations

import torch
from torch import nn

from bertsmith.layers.positions import Positions, sinusoidal_table
from bertsmith.shapes import Hidden, TokenIds


class FixedTable(nn.Module):
    """A table of vectors that is not trained, (rows, hidden)."""

    weight: torch.Tensor

    def __init__(self, rows: int, hidden: int) -> None:
        super().__init__()
        self.register_buffer("weight", sinusoidal_table(rows, hidden), persistent=False)

    def forward(self, rows: TokenIds) -> Hidden:
        """The rows asked for."""
        return self.weight[rows]


class Embeddings(nn.Module):
    """The sum of token, segment and position vectors, normed (Devlin et al. 2018, figure 2)."""

    def __init__(
        self,
        *,
        vocabulary: int,
        hidden: int,
        longest: int,
        segments: int,
        positions: Positions,
        dropout: float,
        norm_epsilon: float,
    ) -> None:
        super().__init__()
        self.tokens = _table(vocabulary, hidden)
        self.segments = _table(segments, hidden) if segments else None
        self.positions: nn.Module | None = None
        if positions == "learned":
            self.positions = _table(longest, hidden)
        elif positions == "sinusoidal":
            self.positions = FixedTable(longest, hidden)
        self.norm = nn.LayerNorm(hidden, eps=norm_epsilon)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: TokenIds, segments: TokenIds, positions: TokenIds) -> Hidden:
        """Vectors (tokens, hidden) of tokens with their segment and place in the sequence."""
        embedded = self.tokens(ids)
        if self.segments is not None:
            embedded = embedded + self.segments(segments)
        if self.positions is not None:
            embedded = embedded + self.positions(positions)
        return self.dropout(self.norm(embedded))  # type: ignore[no-any-return]


def _table(rows: int, hidden: int) -> nn.Embedding:
    """A table of vectors; on the meta device without the filling, which imports torch's compiler.

    That import takes a second, at every start that builds or loads a model.
    """
    weight = torch.empty(rows, hidden)
    if not weight.is_meta:
        nn.init.normal_(weight)
    return nn.Embedding(rows, hidden, _weight=weight)
