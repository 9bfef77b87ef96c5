"""The position-wise feed-forward network."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F  # noqa: N812
from torch import nn

from bertsmith.layers.linear import together
from bertsmith.shapes import Hidden

Activation = Literal["gelu", "gelu_tanh"]


class FeedForward(nn.Module):
    """Two linear layers around a GELU (Hendrycks & Gimpel 2016), exact or by its tanh formula.

    `gated`, what the GELU gives is multiplied by what a third linear layer gives (GeGLU: Shazeer
    2020, equation 5).
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        activation: Activation,
        *,
        gated: bool = False,
        biases: bool = True,
    ) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, inner, bias=biases)
        self.gate = nn.Linear(hidden, inner, bias=biases) if gated else None
        self.down = nn.Linear(inner, hidden, bias=biases)
        self.approximate = "tanh" if activation == "gelu_tanh" else "none"

    def forward(self, inputs: Hidden) -> Hidden:
        """(tokens, hidden) to (tokens, hidden)."""
        if self.gate is None:
            return self.down(F.gelu(self.up(inputs), approximate=self.approximate))  # type: ignore[no-any-return]
        up, gate = together(inputs, self.up, self.gate).chunk(2, -1)
        return self.down(F.gelu(up, approximate=self.approximate) * gate)  # type: ignore[no-any-return]
