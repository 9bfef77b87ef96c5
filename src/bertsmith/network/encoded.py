"""The output of an encoder for a batch, and the taps that ask for its inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from bertsmith.core.shapes import Heads, Hidden, SelectedStates, SelectedTokens


@dataclass(frozen=True, kw_only=True)
class Taps:
    """Numbers of the layers to tap; the first layer is 1.

    Nothing else is computed or kept, and without taps training and inference are the same to the
    last bit as if there were none.
    """

    states: frozenset[int] = frozenset()
    """Layers whose output is kept: 0 for the embeddings, the last one with the final norm."""
    qkv: frozenset[int] = frozenset()
    """Layers whose queries, keys and values are kept, the first two after rotation."""
    weights: frozenset[int] = frozenset()
    """Layers whose attention weights are kept, before dropout. These layers run through the
    reference backend, which agrees with the others to 1e-6."""

    @property
    def layers(self) -> frozenset[int]:
        """The layers that have a tap."""
        return self.states | self.qkv | self.weights

    def __or__(self, other: Taps) -> Taps:
        return Taps(
            states=self.states | other.states,
            qkv=self.qkv | other.qkv,
            weights=self.weights | other.weights,
        )


NO_TAPS = Taps()


class LayerRequest(NamedTuple):
    """The outputs that are wanted of one layer: for which tokens, and the taps of its attention.

    Attention weights are those of all tokens.
    """

    selected: SelectedTokens | None = None
    """Some of the tokens, in order; None for all."""
    qkv: bool = False
    weights: bool = False

    def rows(self, values: Hidden) -> SelectedStates:
        """Return the values of the selected tokens."""
        return values if self.selected is None else values.index_select(0, self.selected)


WHOLE_LAYER = LayerRequest()


class TappedLayer(NamedTuple):
    """The tapped values of one layer: each of `qkv` is (tokens, heads, head).

    `weights` has for each sequence (heads, length, length), rows by query.
    """

    qkv: tuple[Heads, Heads, Heads] | None = None
    weights: tuple[Tensor, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The output of an encoder for a batch.

    `last` (selected, hidden) is that of the last layer at the `selected` tokens, all if None.
    The others hold what `Taps` requests, by layer: `states` (tokens, hidden), the rest as in
    `TappedLayer`.
    """

    last: SelectedStates
    selected: SelectedTokens | None = None
    states: Mapping[int, Hidden] = field(default_factory=dict)
    qkv: Mapping[int, tuple[Heads, Heads, Heads]] = field(default_factory=dict)
    weights: Mapping[int, tuple[Tensor, ...]] = field(default_factory=dict)

    def rows(self, tokens: SelectedTokens) -> SelectedStates:
        """Return the last layer's output at some of the `selected` tokens, in any order."""
        row = tokens if self.selected is None else torch.searchsorted(self.selected, tokens)
        return self.last[row]
