"""The encoder: one forward for all families."""

from __future__ import annotations

from torch import nn

from bertsmith.core.shapes import Hidden, Places
from bertsmith.network.attention.layout import Spans
from bertsmith.network.attention.rotary import Rotation, rotation
from bertsmith.network.batch import Batch
from bertsmith.network.block import Block, layer_norm
from bertsmith.network.config import EncoderConfig
from bertsmith.network.embeddings import Embeddings
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps


class Encoder(nn.Module):
    """Embeddings and a stack of blocks, each for one layer or for several."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList(
            Block(config, first=number == 0) for number in range(config.groups or config.layers)
        )
        before = config.norm == "before"
        self.final_norm: nn.Module = layer_norm(config) if before else nn.Identity()

    def forward(self, batch: Batch, *, at: Places | None = None, taps: Taps = NO_TAPS) -> Encoded:
        """Return the last layer's hidden states and what is tapped on the way.

        With `at` (places,), some of the tokens in order and each once, the last layer works for
        these alone (of other tokens it needs keys and values), unless it has a tap or reads from
        left to right. With `at` empty, the layers above the highest tap are left out.
        """
        hidden = self.embeddings(batch.ids, batch.segments, batch.positions)
        return self.transform(hidden, batch, at=at, taps=taps)

    def transform(
        self, hidden: Hidden, batch: Batch, *, at: Places | None = None, taps: Taps = NO_TAPS
    ) -> Encoded:
        """Return what `forward` does, given the embeddings (tokens, hidden)."""
        layers = self._layers(batch)
        top = len(layers)
        end = max(taps.layers, default=0) if at is not None and not len(at) else top
        whole = self.config.causal or top in taps.layers or end < top
        read = None if whole else at
        states, qkv, weights = {0: hidden} if 0 in taps.states else {}, {}, {}
        for number, (block, spans) in enumerate(layers[:end], 1):
            tapped = (number in taps.qkv, number in taps.weights)
            hidden, inside = block(hidden, spans, read if number == top else None, *tapped)
            if number == top:
                hidden = self.final_norm(hidden)
            if number in taps.states:
                states[number] = hidden
            if number in taps.qkv:
                qkv[number] = inside.qkv
            if number in taps.weights:
                weights[number] = inside.weights
        last = hidden if read is at else hidden[at]
        return Encoded(last=last, places=at, states=states, qkv=qkv, weights=weights)

    def _layers(self, batch: Batch) -> list[tuple[nn.Module, Spans]]:
        """The block of each layer, and what its attention sees."""
        each = self.config.layers // len(self.blocks)
        blocks = [block for block in self.blocks for _ in range(each)]
        return list(zip(blocks, spans_of_layers(self.config, batch), strict=True))


def spans_of_layers(config: EncoderConfig, batch: Batch) -> list[Spans]:
    """Return the part of its sequence that a token sees in each layer; like layers share one."""
    wide = Spans(
        batch.offsets, batch.lengths, config.causal, rotation=_turns(config, batch, config.theta)
    )
    near = wide
    if config.window is not None:
        local, reach = _turns(config, batch, config.local_theta), config.window // 2
        near = Spans(batch.offsets, batch.lengths, window=reach, rotation=local)
    return [near if number % config.global_every else wide for number in range(config.layers)]


def _turns(config: EncoderConfig, batch: Batch, theta: float) -> Rotation | None:
    if config.positions != "rotary":
        return None
    return rotation(batch.positions, config.hidden // config.heads, theta)
