"""Several layers' hidden states as one vector a token."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.core.printable import counted
from bertsmith.core.shapes import Hidden, Offsets, TokenVectors, Vectors
from bertsmith.network.config import VectorPooling


def pooled(kinds: Sequence[VectorPooling], hidden: Hidden, offsets: Offsets) -> Vectors:
    """Return a vector a sequence, (sequences, kinds x hidden): all kinds concatenated.

    `hidden` is (tokens, hidden), `offsets` (sequences + 1,); special tokens count as others do.
    """
    return torch.cat([POOLINGS[kind](hidden, offsets) for kind in kinds], dim=1)


def _mean_by_root(hidden: Tensor, offsets: Tensor) -> Tensor:
    return _reduced(hidden, "sum", offsets) / offsets.diff().sqrt()[:, None]


def _weighted_mean(hidden: Tensor, offsets: Tensor) -> Tensor:
    """Return the mean weighted by position, from 1 (Muennighoff 2022, equation 1)."""
    lengths = offsets.diff()
    starts = offsets[:-1].repeat_interleave(lengths, output_size=len(hidden))
    position = torch.arange(len(hidden), device=hidden.device) - starts + 1
    total = (lengths * (lengths + 1) / 2)[:, None]
    return _reduced(hidden * position[:, None], "sum", offsets) / total


def _reduced(hidden: Tensor, kind: str, offsets: Tensor) -> Tensor:
    reduced: Tensor = torch.segment_reduce(hidden, kind, offsets=offsets, axis=0)
    return reduced


POOLINGS: dict[VectorPooling, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": lambda hidden, offsets: hidden[offsets[:-1]],
    "max": lambda hidden, offsets: _reduced(hidden, "max", offsets),
    "mean": lambda hidden, offsets: _reduced(hidden, "mean", offsets),
    "mean-sqrt-length": _mean_by_root,
    "weighted-mean": _weighted_mean,
    "last-token": lambda hidden, offsets: hidden[offsets[1:] - 1],
}
"""Kinds of pooling by name, in the order in which sentence-transformers puts several end to end."""


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
        """Return the vectors mapped, (sequences, outputs)."""
        return ACTIVATIONS[self.activation](F.linear(vectors, self.weight, self.bias))


class UnitLength(nn.Module):
    """Vectors brought to length 1, (sequences, features) each."""

    def forward(self, vectors: Vectors) -> Vectors:
        """Return the vectors divided by their lengths; those of length 0 stay."""
        return F.normalize(vectors, dim=-1)


class Truncation(nn.Module):
    """The first features alone, (sequences, outputs), as of Matryoshka vectors (Kusupati 2022)."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, vectors: Vectors) -> Tensor:
        """Return the first `outputs` features of the vectors."""
        return vectors[:, : self.outputs]


AfterPooling = Dense | UnitLength | Truncation
"""A layer on what is pooled."""


# with larger ones vectors overflow
_MAX_WEIGHT = 1e9


@dataclass(frozen=True, kw_only=True)
class LayerMix(Config):
    """A token's vector from several layers: their weighted sum, or their concatenation.

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
                f"{counted(len(self.weights), 'weight')} for {counted(len(self.layers), 'layer')}",
                remedy="give one a layer",
            )
        factors = (*(self.weights or ()), self.scale)
        if not all(map(math.isfinite, factors)):
            raise ConfigError("a weight of a layer is not a number")
        if max(map(abs, factors)) > _MAX_WEIGHT:
            remedy = f"it must be at most {_MAX_WEIGHT:g}"
            raise ConfigError("a weight of a layer is too large", remedy=remedy)

    @property
    def parts(self) -> int:
        """The width of the vectors in multiples of the encoder's."""
        return len(self.layers) if self.weights is None else 1

    def mixed(self, states: Mapping[int, Hidden]) -> TokenVectors:
        """Return vectors (tokens, parts x hidden), given the states of its layers by number."""
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
        """Return the mix as it is now, of the layers that it was trained on."""
        return LayerMix(
            layers=tuple(layers),
            weights=tuple(self.scores.softmax(0).tolist()),
            scale=self.scale.item(),
        )
