"""Token, segment and position embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertsmith.core.shapes import Hidden, TokenIds
from bertsmith.network.config import EncoderConfig
from bertsmith.network.dropout import Dropout


def sinusoidal_table(longest: int, hidden: int) -> Tensor:
    """Sines and cosines of geometrically spaced wavelengths, (longest, hidden), values in [-1, 1].

    Vaswani et al. 2017, section 3.5: even columns are sines, odd ones cosines.
    """
    position = torch.arange(longest, dtype=torch.float64)[:, None]
    column = torch.arange(hidden, dtype=torch.float64)
    angle = position / 10_000 ** (2 * (column // 2) / hidden)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos()).float()


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
    """The sum of token, segment and position vectors, normed (Devlin et al. 2018, figure 2).

    With `embedding` the tables are that wide, and a matrix brings their sum to `hidden`, so that a
    large vocabulary needs no large table (ALBERT: Lan et al. 2019, section 3.1). The first
    position's vector is the row `position_offset` of its table, 2 in a RoBERTa. Rotary positions
    are not added here: attention turns by them.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.embedding or config.hidden
        self.tokens = _table(config.vocabulary, width)
        self.segments = _table(config.segments, width) if config.segments else None
        self.positions: nn.Module | None = None
        self.position_offset = config.position_offset
        if config.positions == "learned":
            self.positions = _table(config.longest + config.position_offset, width)
        elif config.positions == "sinusoidal":
            self.positions = FixedTable(config.longest + config.position_offset, width)
        self.norm = nn.LayerNorm(width, eps=config.norm_epsilon, bias=config.biases)
        self.dropout = Dropout(config.dropout)
        self.widen = None if config.embedding is None else nn.Linear(width, config.hidden)

    def forward(self, ids: TokenIds, segments: TokenIds, positions: TokenIds) -> Hidden:
        """Return vectors (tokens, hidden) of tokens with segment and place in the sequence."""
        summed = self.summed(ids, segments, positions)
        return summed if self.widen is None else self.widen(summed)

    def summed(self, ids: TokenIds, segments: TokenIds, positions: TokenIds) -> Hidden:
        """Return the normed sums of the tables' rows, (tokens, width of the tables)."""
        embedded = self.tokens(ids)
        if self.segments is not None:
            # a single row is for both texts of a pair
            alone = self.segments.num_embeddings == 1
            embedded = embedded + (self.segments.weight if alone else self.segments(segments))
        if self.positions is not None:
            embedded = embedded + self.positions(positions + self.position_offset)
        return self.dropout(self.norm(embedded))  # type: ignore[no-any-return]


def _table(rows: int, hidden: int) -> nn.Embedding:
    """A table of vectors; on the meta device without the filling, which imports torch's compiler.

    That import takes a second, at every start that builds or loads a model.
    """
    weight = torch.empty(rows, hidden)
    if not weight.is_meta:
        nn.init.normal_(weight)
    return nn.Embedding(rows, hidden, _weight=weight)
