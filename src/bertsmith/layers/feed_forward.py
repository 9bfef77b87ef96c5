"""The position-wise feed-forward network."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F  # noqa: N812
from torch import nn

from bertsmith.shapes import Hidden

Activation = Literal["gelu", "gelu_tanh"]


class FeedForward(nn.Module):
    """Two linear layers around a GELU (Hendrycks & Gimpel 2016), exact or by its tanh formula."""

    def __init__(self, hidden: int, inner: int, activation: Activation) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)
        self.approximate = "tanh" if activation == "gelu_tanh" else "none"

    def forward(self, inputs: Hidden) -> Hidden:
        """(tokens, hidden) to (tokens, hidden)."""
        return self.down(F.gelu(self.up(inputs), approximate=self.approximate))  # type: ignore[no-any-return]
