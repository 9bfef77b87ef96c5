"""Multi-head self-attention over a packed batch."""

from __future__ import annotations

from torch import Tensor, nn

from bertsmith.layers.dropout import Dropout
from bertsmith.layers.linear import together
from bertsmith.layers.spans import Spans
from bertsmith.shapes import AtPlaces, Hidden, Places


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2.2; Devlin et al. 2018)."""

    def __init__(self, hidden: int, heads: int, dropout: float, *, biases: bool = True) -> None:
        super().__init__()
        self.heads = heads
        # of attention weights: the backends draw what is dropped
        self.dropout = Dropout(dropout)
        self.query = nn.Linear(hidden, hidden, bias=biases)
        self.key = nn.Linear(hidden, hidden, bias=biases)
        self.value = nn.Linear(hidden, hidden, bias=biases)
        self.output = nn.Linear(hidden, hidden, bias=biases)

    def forward(self, inputs: Hidden, spans: Spans, at: Places | None = None) -> AtPlaces:
        """(tokens, hidden) to (tokens, hidden), each token seeing its own sequence only.

        With `at` (places,), some of the tokens in order, to (places, hidden): what these see.
        """
        if at is None:
            query, key, value = self._mapped(inputs, self.query, self.key, self.value)
        else:
            (query,) = self._mapped(inputs.index_select(0, at), self.query)
            key, value = self._mapped(inputs, self.key, self.value)
        attended = spans.attend(query, key, value, self.dropout.active_share, at)
        return self.output(attended.flatten(1))  # type: ignore[no-any-return]

    def _mapped(self, inputs: Hidden, *maps: nn.Linear) -> tuple[Tensor, ...]:
        """What several linear maps make of the same values, each (tokens, heads, head)."""
        mixed: Tensor = together(inputs, *maps).unflatten(-1, (len(maps), self.heads, -1))
        return mixed.unbind(1)
