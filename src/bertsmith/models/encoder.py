"""The encoder: one forward for all families."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from bertsmith.batches.batch import Batch
from bertsmith.config import Config
from bertsmith.errors import ConfigError
from bertsmith.layers.block import Block
from bertsmith.layers.embeddings import Embeddings
from bertsmith.layers.evening import FEW, evened
from bertsmith.layers.feed_forward import Activation
from bertsmith.layers.positions import Positions
from bertsmith.layers.spans import Spans
from bertsmith.shapes import Hidden, Places

Pooling = Literal["tanh", "relu"]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(Config):
    """Sizes and wiring of an encoder (Devlin et al. 2018, section 3)."""

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
    """Learned as BERT's, sinusoidal (not trained), or none, to see what order is worth."""
    activation: Activation = "gelu"
    """The exact GELU, or its tanh formula."""
    pooling: Pooling = "tanh"
    """What the layer ends in through which heads read the first token: tanh as BERT's pooler, relu
    as DistilBERT's classifier, which has no pooler else."""
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
        for name in ("vocabulary", "hidden", "layers", "heads", "feed_forward", "longest"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}", remedy="it must be at least 1"
                )
        if self.hidden % self.heads:
            raise ConfigError(f"hidden ({self.hidden}) is no multiple of heads ({self.heads})")
        self._check_sharing()
        self._check_family()
        for name in ("segments", "position_offset"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="it must be 0 or more")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="it must be in [0, 1)")

    def _check_sharing(self) -> None:
        for name in ("embedding", "groups"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", remedy="it must be at least 1")
        if self.groups is None:
            return
        if self.layers % self.groups:
            raise ConfigError(f"layers ({self.layers}) is no multiple of groups ({self.groups})")
        if self.embedding is None:
            raise ConfigError(
                "only an ALBERT shares layers",
                remedy=f"set embedding; {self.hidden} is as wide as the encoder",
            )

    def _check_family(self) -> None:
        """Whether the wiring is that of one family."""
        wired = {
            "ALBERT": self.embedding is not None,
            "RoBERTa": self.position_offset > 0,
            "DistilBERT": self.pooling == "relu",
        }
        names = [name for name, is_so in wired.items() if is_so]
        if len(names) > 1:
            raise ConfigError(f"cannot be both {' and '.join(names)}", remedy="choose one family")
        if names and self.causal:
            raise ConfigError(f"{names[0]} reads no text from left to right", remedy="take a BERT")
        if self.pooling == "relu" and (self.segments or self.norm_epsilon != 1e-12):
            raise ConfigError(
                "DistilBERT has no segments and a norm_epsilon of 1e-12", remedy="set them so"
            )


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
            dropout=config.dropout,
            norm_epsilon=config.norm_epsilon,
        )
        self.blocks = nn.ModuleList(
            Block(
                hidden=config.hidden,
                heads=config.heads,
                feed_forward=config.feed_forward,
                activation=config.activation,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                norm_epsilon=config.norm_epsilon,
            )
            for _ in range(config.groups or config.layers)
        )

    def forward(self, batch: Batch, read: Places | None = None) -> Hidden:
        """The last layer's hidden states, (tokens, hidden).

        With `read`, some of the tokens in order and each once, the last layer works for these, and
        other rows hold nothing of use: of other tokens it needs keys and values. Reading from left
        to right, it works for all.
        """
        tokens = batch.tokens
        if torch.is_grad_enabled() and not batch.ids.is_cuda:
            batch = _with_spare_sequence(batch)
        if read is None or self.config.causal:
            return self.hidden_states(batch)[-1][:tokens]
        *before, last = self._layers()
        spans = Spans(batch.offsets, batch.lengths)
        hidden = self.embeddings(batch.ids, batch.segments, batch.positions)
        for block in before:
            hidden = block(hidden, spans)
        read = _with_spare_places(read, tokens)
        own = last(hidden, spans, read)
        return hidden.new_zeros(tokens, hidden.shape[1], dtype=own.dtype).index_copy(0, read, own)  # type: ignore[no-any-return]

    def hidden_states(self, batch: Batch, last: int | None = None) -> list[Hidden]:
        """The embeddings and every layer's output, each (tokens, hidden), up to a layer's."""
        spans = Spans(batch.offsets, batch.lengths, self.config.causal)
        states = [self.embeddings(batch.ids, batch.segments, batch.positions)]
        for block in self._layers()[:last]:
            states.append(block(states[-1], spans))
        return states

    def _layers(self) -> list[nn.Module]:
        """The block of each layer."""
        each = self.config.layers // len(self.blocks)
        return [block for block in self.blocks for _ in range(each)]


def _with_spare_sequence(batch: Batch) -> Batch:
    """The batch with one sequence more where that gives it a usual number of tokens."""
    spare = evened(batch.tokens, FEW) - batch.tokens
    if not spare:
        return batch
    more = batch.ids.new_zeros(spare)
    return replace(
        batch,
        ids=torch.cat([batch.ids, more]),
        segments=torch.cat([batch.segments, more]),
        positions=torch.cat([batch.positions, more]),
        offsets=torch.cat([batch.offsets, batch.offsets[-1:] + spare]),
        lengths=(*batch.lengths, spare),
    )


def _with_spare_places(read: Tensor, tokens: int) -> Tensor:
    """The places with some of the others where that gives a usual number of them."""
    spare = evened(len(read)) - len(read)
    if read.is_cuda or not spare:
        return read
    unread = torch.ones(tokens, dtype=torch.bool)
    unread[read] = False
    return torch.cat([read, unread.nonzero().flatten()[:spare]]).sort().values
