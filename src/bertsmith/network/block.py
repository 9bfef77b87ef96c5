"""One layer of the Transformer encoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.core.shapes import AtPlaces, Hidden, Places
from bertsmith.network.attention.layout import Spans
from bertsmith.network.attention.reference import weighted_values
from bertsmith.network.config import EncoderConfig
from bertsmith.network.dropout import Dropout
from bertsmith.network.encoded import Inside


def together(inputs: AtPlaces, *maps: nn.Linear) -> Tensor:
    """Return several linear maps of one width applied to the same values, (tokens, maps x width).

    One wide product is faster than several; the weights stay apart, as most published folders and
    the orthogonalising optimiser want them.
    """
    weight = torch.cat([each.weight for each in maps])
    bias = None if maps[0].bias is None else torch.cat([each.bias for each in maps])
    return F.linear(inputs, weight, bias)


def layer_norm(config: EncoderConfig) -> nn.LayerNorm:
    """Return a layer norm of hidden states."""
    return nn.LayerNorm(config.hidden, eps=config.norm_epsilon, bias=config.biases)


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2.2; Devlin et al. 2018)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden, biases = config.hidden, config.biases
        self.heads = config.heads
        # of attention weights: the backends draw what is dropped
        self.dropout = Dropout(config.attention_dropout)
        self.query = nn.Linear(hidden, hidden, bias=biases)
        self.key = nn.Linear(hidden, hidden, bias=biases)
        self.value = nn.Linear(hidden, hidden, bias=biases)
        self.output = nn.Linear(hidden, hidden, bias=biases)

    def forward(
        self,
        inputs: Hidden,
        spans: Spans,
        at: Places | None = None,
        qkv: bool = False,
        weights: bool = False,
    ) -> tuple[AtPlaces, Inside]:
        """(tokens, hidden) to (tokens, hidden), each token seeing its own sequence only.

        With `at` (places,), some of the tokens in order, to (places, hidden): what these see.
        `qkv` and `weights` say what else is returned; weights want all tokens.
        """
        if at is None:
            query, key, value = self._mapped(inputs, self.query, self.key, self.value)
        else:
            (query,) = self._mapped(inputs.index_select(0, at), self.query)
            key, value = self._mapped(inputs, self.key, self.value)
        query, key = spans.rotated(query, key, at)
        seen = spans.weights(query, key) if weights else None
        if seen is None:
            attended = spans.attend(query, key, value, self.dropout.active_share, at)
        else:
            attended = weighted_values(seen, value, self.dropout)
        inside = Inside((query, key, value) if qkv else None, seen)
        return self.output(attended.flatten(1)), inside

    def _mapped(self, inputs: Hidden, *maps: nn.Linear) -> tuple[Tensor, ...]:
        """Return several linear maps of the same values, each (tokens, heads, head)."""
        mixed: Tensor = together(inputs, *maps).unflatten(-1, (len(maps), self.heads, -1))
        return mixed.unbind(1)


class FeedForward(nn.Module):
    """Two linear layers around a GELU (Hendrycks & Gimpel 2016), exact or by its tanh formula.

    `gated`, what the GELU gives is multiplied by what a third linear layer gives (GeGLU: Shazeer
    2020, equation 5).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden, inner, biases = config.hidden, config.feed_forward, config.biases
        self.up = nn.Linear(hidden, inner, bias=biases)
        self.gate = nn.Linear(hidden, inner, bias=biases) if config.gated else None
        self.down = nn.Linear(inner, hidden, bias=biases)
        self.approximate = "tanh" if config.activation == "gelu_tanh" else "none"

    def forward(self, inputs: Hidden) -> Hidden:
        """(tokens, hidden) to (tokens, hidden)."""
        if self.gate is None:
            return self.down(F.gelu(self.up(inputs), approximate=self.approximate))  # type: ignore[no-any-return]
        up, gate = together(inputs, self.up, self.gate).chunk(2, -1)
        return self.down(F.gelu(up, approximate=self.approximate) * gate)  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and feed-forward, each added to its input.

    With `norm` after, each sum is normed (BERT); before, what goes into the two is normed and their
    sums stay as they are (Xiong et al. 2020, figure 1). There the `first` block has nothing to norm
    before its attention: what embeddings give is normed already (Warner et al. 2024).
    """

    def __init__(self, config: EncoderConfig, *, first: bool) -> None:
        super().__init__()
        self.norm = config.norm
        self.attention = SelfAttention(config)
        unnormed = first and config.norm == "before"
        self.attention_norm: nn.Module = nn.Identity() if unnormed else layer_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = layer_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        inputs: Hidden,
        spans: Spans,
        at: Places | None = None,
        qkv: bool = False,
        weights: bool = False,
    ) -> tuple[AtPlaces, Inside]:
        """(tokens, hidden) to (tokens, hidden), and what is asked for of the attention.

        With `at` (places,), some of the tokens in order, to (places, hidden): theirs only.
        """
        before = self.norm == "before"
        normed = self.attention_norm(inputs) if before else inputs
        attended, inside = self.attention(normed, spans, at, qkv, weights)
        kept = inputs if at is None else inputs.index_select(0, at)
        if before:
            middle = self.dropout.add(kept, attended)
            changed = self.feed_forward(self.feed_forward_norm(middle))
            return self.dropout.add(middle, changed), inside
        middle = self.attention_norm(self.dropout.add(kept, attended))
        changed = self.dropout.add(middle, self.feed_forward(middle))
        return self.feed_forward_norm(changed), inside
