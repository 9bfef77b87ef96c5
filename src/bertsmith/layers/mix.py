"""Several layers' hidden states as one vector a token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bertsmith.config import Config
from bertsmith.errors import ConfigError
from bertsmith.shapes import Hidden, TokenVectors


@dataclass(frozen=True, kw_only=True)
class LayerMix(Config):
    """Which layers make a token's vector: a weighted sum of them, or all of them end to end.

    As a JSON file it is what a learned mix is kept in.
    """

    layers: tuple[int, ...]
    """Layers from 0, the embeddings, to the last (L), each once and in order."""
    weights: tuple[float, ...] | None = None
    """A factor a layer; None puts the layers end to end."""
    scale: float = 1.0
    """A factor of the whole sum."""

    def __post_init__(self) -> None:
        if not self.layers or list(self.layers) != sorted({*self.layers}) or self.layers[0] < 0:
            raise ConfigError(
                f"layers are {list(self.layers)}", remedy="name each once, in order, from 0"
            )
        if self.weights is not None and len(self.weights) != len(self.layers):
            raise ConfigError(
                f"{len(self.weights)} weights for {len(self.layers)} layers",
                remedy="give one a layer",
            )
        if not all(map(math.isfinite, (*(self.weights or ()), self.scale))):
            raise ConfigError("a weight of a layer is no number")

    @property
    def parts(self) -> int:
        """How many times as wide as the encoder the vectors are."""
        return len(self.layers) if self.weights is None else 1

    def mixed(self, states: Sequence[Hidden]) -> TokenVectors:
        """Vectors (tokens, parts x hidden), of the states of all layers, the embeddings first."""
        chosen = [states[layer] for layer in self.layers]
        if self.weights is None:
            return torch.cat(chosen, dim=1) * self.scale
        if len(chosen) == 1 and self.weights[0] * self.scale == 1:
            return chosen[0]
        total = torch.zeros_like(chosen[0])
        for state, weight in zip(chosen, self.weights, strict=True):
            total.add_(state, alpha=weight * self.scale)
        return total


class ScalarMix(nn.Module):
    """A learned mix: the layers weighted by a softmax, times a scale (Peters et al. 2018, eq. 1).

    It starts as the mean of the layers.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, states: Sequence[Hidden]) -> Hidden:
        """(tokens, hidden) of as many states (tokens, hidden) as there are scores."""
        assert len(states) == len(self.scores)
        shares = self.scores.softmax(0)
        mixed = torch.zeros_like(states[0])
        for share, state in zip(shares, states, strict=True):
            mixed = mixed + share * state
        return self.scale * mixed

    def learned(self, layers: Sequence[int]) -> LayerMix:
        """The mix as it is now, of the layers that it was trained on, to be kept or to be used."""
        return LayerMix(
            layers=tuple(layers),
            weights=tuple(self.scores.softmax(0).tolist()),
            scale=self.scale.item(),
        )
