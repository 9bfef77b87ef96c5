"""One layer of the Transformer encoder."""

from __future__ import annotations

from torch import nn

from bertsmith.layers.attention import SelfAttention
from bertsmith.layers.dropout import Dropout
from bertsmith.layers.feed_forward import Activation, FeedForward
from bertsmith.layers.spans import Spans
from bertsmith.shapes import AtPlaces, Hidden, Places


class Block(nn.Module):
    """Attention and feed-forward, each added to its input and then normed (post-norm, as BERT)."""

    def __init__(
        self,
        *,
        hidden: int,
        heads: int,
        feed_forward: int,
        activation: Activation,
        dropout: float,
        attention_dropout: float,
        norm_epsilon: float,
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(hidden, heads, attention_dropout)
        self.attention_norm = nn.LayerNorm(hidden, eps=norm_epsilon)
        self.feed_forward = FeedForward(hidden, feed_forward, activation)
        self.feed_forward_norm = nn.LayerNorm(hidden, eps=norm_epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Hidden, spans: Spans, at: Places | None = None) -> AtPlaces:
        """(tokens, hidden) to (tokens, hidden).

        With `at` (places,), some of the tokens in order, to (places, hidden): theirs only.
        """
        attended = self.attention(inputs, spans, at)
        kept = inputs if at is None else inputs.index_select(0, at)
        middle = self.attention_norm(self.dropout.add(kept, attended))
        changed = self.dropout.add(middle, self.feed_forward(middle))
        return self.feed_forward_norm(changed)  # type: ignore[no-any-return]
