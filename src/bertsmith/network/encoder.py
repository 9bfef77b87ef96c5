"""The encoder: one forward for all families."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.core.shapes import Hidden, Places
from bertsmith.network.attention.layout import Spans
from bertsmith.network.attention.rotary import Rotation, rotation
from bertsmith.network.batch import Batch
from bertsmith.network.block import Block
from bertsmith.network.config import Activation, Norm, Positions
from bertsmith.network.embeddings import Embeddings
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.families.family import FamilyName

_SIZES = (
    "vocabulary", "hidden", "layers", "heads", "feed_forward", "longest", "embedding", "groups",
    "window", "global_every",
)  # fmt: skip

Pooling = Literal["tanh", "relu", "gelu"]
Pooled = Literal["first", "last", "mean"]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(Config):
    """Sizes and wiring of an encoder (Devlin et al. 2018, section 3); any wiring can be trained."""

    family: FamilyName = "bert"
    """The family whose heads it has and, where that can hold its wiring, whose folders."""
    vocabulary: int
    """Entries of the vocabulary (V)."""
    hidden: int
    """Width of the encoder (H)."""
    layers: int
    """Number of blocks (L)."""
    heads: int
    """Attention heads a block (A); divides `hidden`."""
    feed_forward: int
    """Inner width of the feed-forward network; 4 H in BERT."""
    embedding: int | None = None
    """Width of the embedding tables (E), brought to `hidden` by a matrix (ALBERT: Lan et al. 2019,
    section 3.1); None for tables as wide as the encoder, without one."""
    groups: int | None = None
    """Blocks there are weights for; layers / groups layers in a row share each (ALBERT). None for
    every layer its own."""
    longest: int = 512
    """Positions there are embeddings for, the longest sequence in tokens."""
    position_offset: int = 0
    """Row of the position table for the first token; the rows before it are not used. 2 in a
    RoBERTa, one more than its padding id."""
    segments: int = 2
    """Segment embeddings; 0 for none, 1 for one that all tokens share."""
    positions: Positions = "learned"
    """Learned as BERT's, sinusoidal (not trained), rotary, or none, to see what order is worth."""
    theta: float = 10_000.0
    """Base of the wavelengths of rotary positions (Su et al. 2021, section 3.2.2)."""
    local_theta: float = 10_000.0
    """The same in layers whose attention is local."""
    window: int | None = None
    """Tokens, half of them on either side, that a token sees besides itself in a layer whose
    attention is local (Beltagy et al. 2020); None for all."""
    global_every: int = 1
    """One layer in so many sees all, the first of them; in the others attention is local."""
    activation: Activation = "gelu"
    """The exact GELU, or its tanh formula."""
    gated: bool = False
    """Whether the feed-forward network multiplies two of its inner values (Shazeer 2020)."""
    norm: Norm = "after"
    """Where layer norms are: after each sum, or before attention and feed-forward, with one after
    the last layer (Xiong et al. 2020)."""
    biases: bool = True
    """Whether linear layers and norms have biases."""
    pooling: Pooling = "tanh"
    """What the layer ends in through which heads read the first token: tanh as in BERT, relu as in
    DistilBERT, gelu as in ModernBERT."""
    pooled: Pooled = "first"
    """The token that stands for its sequence in that layer, or the mean of all (ModernBERT). Read
    from left to right, only the last token has seen the others."""
    causal: bool = False
    """Whether a token sees only itself and those before it, for reading from left to right."""
    dropout: float = 0.1
    """Share of hidden values set to zero in training."""
    attention_dropout: float = 0.1
    """Share of attention weights set to zero in training."""
    norm_epsilon: float = 1e-12
    """Added to the variance in layer norms."""
    initial_std: float = 0.02
    """Standard deviation of the truncated normal that weights start from."""

    def __post_init__(self) -> None:
        for name in _SIZES:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", remedy="it must be at least 1")
        if self.hidden % self.heads:
            raise ConfigError(f"hidden ({self.hidden}) is no multiple of heads ({self.heads})")
        self._check_wiring()
        for name in ("segments", "position_offset"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="it must be 0 or more")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="it must be in [0, 1)")

    def _check_wiring(self) -> None:
        """Refuse what cannot be computed."""
        if self.groups is not None and self.layers % self.groups:
            raise ConfigError(f"layers ({self.layers}) is no multiple of groups ({self.groups})")
        if self.pooled == "last" and not self.causal:
            raise ConfigError(
                "pooled is last, and the encoder does not read from left to right",
                remedy="set it to first",
            )
        if self.causal and self.window is not None:
            raise ConfigError("causal attention cannot have a window", remedy="set window to None")
        if self.positions == "rotary" and self.hidden // self.heads % 2:
            raise ConfigError(
                f"heads are {self.hidden // self.heads} wide",
                remedy="rotary positions need an even number",
            )
        for name in ("theta", "local_theta"):
            if not 1 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="it must exceed 1")


def encoder_of(family: FamilyName, size: str, vocabulary: int, **changes: Any) -> EncoderConfig:  # noqa: ANN401
    """Return the encoder of a family's size, some settings changed; `ConfigError` if unknown."""
    record = FAMILIES[family]
    if size not in record.sizes:
        raise ConfigError(
            f"no {record.title} of the size {size!r}", remedy=f"sizes are {', '.join(record.sizes)}"
        )
    sizes = record.sizes[size]._asdict() | {"vocabulary": vocabulary}
    return EncoderConfig(**{"family": family, **sizes, **record.wiring, **changes})


class Encoder(nn.Module):
    """Embeddings and a stack of blocks, each for one layer or for several."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(
            vocabulary=config.vocabulary,
            hidden=config.hidden,
            width=config.embedding,
            longest=config.longest,
            segments=config.segments,
            positions=config.positions,
            position_offset=config.position_offset,
            biases=config.biases,
            dropout=config.dropout,
            norm_epsilon=config.norm_epsilon,
        )
        self.blocks = nn.ModuleList(
            Block(
                hidden=config.hidden,
                heads=config.heads,
                feed_forward=config.feed_forward,
                activation=config.activation,
                gated=config.gated,
                biases=config.biases,
                norm=config.norm,
                first=number == 0,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                norm_epsilon=config.norm_epsilon,
            )
            for number in range(config.groups or config.layers)
        )
        self.final_norm: nn.Module = (
            nn.LayerNorm(config.hidden, eps=config.norm_epsilon, bias=config.biases)
            if config.norm == "before"
            else nn.Identity()
        )

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
        config = self.config
        wide = Spans(
            batch.offsets, batch.lengths, config.causal, rotation=self._turns(batch, False)
        )
        near = wide
        if config.window is not None:
            local, reach = self._turns(batch, True), config.window // 2
            near = Spans(batch.offsets, batch.lengths, window=reach, rotation=local)
        each = config.layers // len(self.blocks)
        blocks = [block for block in self.blocks for _ in range(each)]
        return [(b, near if n % config.global_every else wide) for n, b in enumerate(blocks)]

    def _turns(self, batch: Batch, local: bool) -> Rotation | None:
        config = self.config
        if config.positions != "rotary":
            return None
        theta = config.local_theta if local else config.theta
        return rotation(batch.positions, config.hidden // config.heads, theta)
