"""One layer of the Transformer encoder."""

from __future__ import annotations

from typing import Literal

from torch import nn

from bertsmith.layers.attention import SelfAttention
from bertsmith.layers.dropout import Dropout
from bertsmith.layers.feed_forward import Activation, FeedForward
from bertsmith.layers.spans import Spans
from bertsmith.shapes import AtPlaces, Hidden, Places

Norm = Literal["after", "before"]


class Block(nn.Module):
    """Attention and feed-forward, each added to its input.

    With `norm` after, each sum is normed (BERT); before, what goes into the two is normed and their
    sums stay as they are (Xiong et al. 2020, figure 1). There the `first` block has nothing to norm
    before its attention: what embeddings give is normed already (Warner et al. 2024).
    """

    def __init__(
        self,
        *,
        hidden: int,
        heads: int,
        feed_forward: int,
        activation: Activation,
        gated: bool = False,
        biases: bool = True,
        norm: Norm = "after",
        first: bool = False,
        dropout: float,
        attention_dropout: float,
        norm_epsilon: float,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.attention = SelfAttention(hidden, heads, attention_dropout, biases=biases)
        self.attention_norm: nn.Module = (
            nn.Identity()
            if first and norm == "before"
            else nn.LayerNorm(hidden, eps=norm_epsilon, bias=biases)
        )
        self.feed_forward = FeedForward(
            hidden, feed_forward, activation, gated=gated, biases=biases
        )
        self.feed_forward_norm = nn.LayerNorm(hidden, eps=norm_epsilon, bias=biases)
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Hidden, spans: Spans, at: Places | None = None) -> AtPlaces:
        """(tokens, hidden) to (tokens, hidden).

        With `at` (places,), some of the tokens in order, to (places, hidden): theirs only.
        """
        before = self.norm == "before"
        attended = self.attention(self.attention_norm(inputs) if before else inputs, spans, at)
        kept = inputs if at is None else inputs.index_select(0, at)
        if before:
            middle = self.dropout.add(kept, attended)
            return self.dropout.add(middle, self.feed_forward(self.feed_forward_norm(middle)))
        middle = self.attention_norm(self.dropout.add(kept, attended))
        changed = self.dropout.add(middle, self.feed_forward(middle))
        return self.feed_forward_norm(changed)  # type: ignore[no-any-return]
