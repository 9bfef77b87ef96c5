"""What some models do with a text's vector once its tokens have been pooled."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.shapes import Vectors

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda vectors: vectors,
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "GELU": F.gelu,
    "Sigmoid": torch.sigmoid,
}
"""By the names of torch's classes, with the settings these have by default."""


class Dense(nn.Module):
    """A linear map with an activation, (sequences, inputs) to (sequences, outputs)."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)
        self.activation = activation
        self.inputs, self.outputs = weight.shape[1], weight.shape[0]

    def forward(self, vectors: Vectors) -> Tensor:
        """The vectors mapped, (sequences, outputs)."""
        return ACTIVATIONS[self.activation](F.linear(vectors, self.weight, self.bias))


class UnitLength(nn.Module):
    """Vectors brought to length 1, (sequences, features) each."""

    def forward(self, vectors: Vectors) -> Vectors:
        """The vectors divided by their lengths; those of length 0 stay."""
        return F.normalize(vectors, dim=-1)
