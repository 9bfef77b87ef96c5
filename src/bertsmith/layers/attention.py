"""Multi-head self-attention over a packed batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from bertsmith.layers.spans import Spans
from bertsmith.shapes import Hidden


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2.2; Devlin et al. 2018)."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)

    def forward(self, inputs: Hidden, spans: Spans) -> Hidden:
        """(tokens, hidden) to (tokens, hidden), each token seeing its own sequence only."""
        # one wide product is faster than three; the weights stay apart, as published folders and
        # the orthogonalising optimiser want them
        parts = (self.query, self.key, self.value)
        weight = torch.cat([part.weight for part in parts])
        bias = torch.cat([part.bias for part in parts])
        mixed = F.linear(inputs, weight, bias).unflatten(-1, (3, self.heads, -1))
        query, key, value = mixed.unbind(1)
        dropout = self.dropout if self.training else 0.0
        return self.output(spans.attend(query, key, value, dropout).flatten(1))  # type: ignore[no-any-return]
