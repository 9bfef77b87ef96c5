"""The pooler and the prediction heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.core.shapes import (
    AtTargets,
    Hidden,
    Logits,
    Offsets,
    Pooled,
    PooledTokens,
    Scores,
    SelectedStates,
    Table,
)
from bertsmith.network.config import EncoderConfig, PretrainingHead
from bertsmith.network.config import Pooled as PooledToken
from bertsmith.network.dropout import Dropout
from bertsmith.network.encoded import Encoded
from bertsmith.network.encoder import LayerNorm
from bertsmith.network.families.catalog import FAMILIES


def _approximate(encoder: EncoderConfig) -> str:
    """Return the GELU formula of the family's heads, by torch's name."""
    exact = encoder.activation != "gelu_tanh" or FAMILIES[encoder.family].exact_heads
    return "none" if exact else "tanh"


class Pooler(nn.Module):
    """The first token's hidden state through a dense layer and tanh (Devlin et al. 2018: C).

    In the classifiers of DistilBERT it is a ReLU, and in those of RoBERTa (Liu et al. 2019) there
    is dropout before the layer too. Below the heads of ModernBERT (Warner et al. 2024) it is a GELU
    and a norm after it, and a sequence may be the mean of its tokens. Of an encoder that reads from
    left to right it is the last token that has seen the others.
    """

    def __init__(self, encoder: EncoderConfig, dropout: float | None = None) -> None:
        """`dropout` is the share of what goes in, None where the family drops nothing there."""
        super().__init__()
        self.pooling, self.pooled = encoder.pooling, encoder.pooled
        self.dropout: nn.Module = nn.Identity() if dropout is None else Dropout(dropout)
        self.dense = nn.Linear(encoder.hidden, encoder.hidden, bias=encoder.biases)
        self.norm: nn.Module = nn.Identity()
        if FAMILIES[encoder.family].pooler == "heads":
            self.norm = LayerNorm(encoder.hidden, eps=encoder.norm_epsilon, bias=encoder.biases)
        self.approximate = _approximate(encoder)

    def forward(self, encoded: Encoded, offsets: Offsets) -> Pooled:
        """Return a vector a sequence, (sequences, hidden), given the sequences' offsets."""
        if self.pooled == "mean":
            return self.features(_means(encoded.last, offsets))
        return self.features(encoded.rows(pooled_tokens(self.pooled, offsets)))

    def features(self, read: SelectedStates) -> SelectedStates:
        """Return the transformed values of sequences, or of tokens, (tokens, hidden)."""
        values = self.dense(self.dropout(read))
        if self.pooling == "gelu":
            return self.norm(F.gelu(values, approximate=self.approximate))  # type: ignore[no-any-return]
        return values.relu() if self.pooling == "relu" else values.tanh()  # type: ignore[no-any-return]


def pooled_tokens(pooled: PooledToken, offsets: Offsets) -> PooledTokens:
    """Return the tokens that the sequences are pooled at, (sequences,)."""
    assert pooled != "mean"
    return offsets[1:] - 1 if pooled == "last" else offsets[:-1]


def _means(hidden: Hidden, offsets: Offsets) -> Pooled:
    """Return the mean of each sequence's tokens."""
    lengths = offsets.diff()
    sequence = torch.arange(len(lengths), device=hidden.device)
    owner = sequence.repeat_interleave(lengths, output_size=len(hidden))
    sums = hidden.new_zeros(len(lengths), hidden.shape[1]).index_add(0, owner, hidden)
    return sums / lengths[:, None]


class ReplacedTokensHead(nn.Module):
    """Tells whether each token was replaced by a generator (Clark et al. 2020, section 2)."""

    def __init__(self, encoder: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(encoder.hidden, encoder.hidden)
        self.output = nn.Linear(encoder.hidden, 1)
        self.approximate = "tanh" if encoder.activation == "gelu_tanh" else "none"

    def forward(self, hidden: Hidden) -> Scores:
        """Return logits (tokens,), above 0 for replaced ones, given (tokens, hidden)."""
        return self.output(F.gelu(self.dense(hidden), approximate=self.approximate))[:, 0]  # type: ignore[no-any-return]


class MaskedLMHead(nn.Module):
    """Predicts token ids; its output matrix is the token embedding table (tied), plus a bias.

    The table is as wide as the encoder but in an ALBERT.
    """

    def __init__(self, encoder: EncoderConfig) -> None:
        super().__init__()
        width = encoder.embedding or encoder.hidden
        self.dense = nn.Linear(encoder.hidden, width, bias=encoder.biases)
        self.norm = LayerNorm(width, eps=encoder.norm_epsilon, bias=encoder.biases)
        self.bias = nn.Parameter(torch.zeros(encoder.vocabulary))
        self.approximate = _approximate(encoder)

    def forward(self, hidden: AtTargets, table: Table) -> Logits:
        """Return logits (targets, vocabulary) of some tokens, (targets, hidden)."""
        return F.linear(self.features(hidden), table, self.bias)

    def features(self, hidden: AtTargets) -> Tensor:
        """Return the values that the table is multiplied with, as wide as it."""
        return self.norm(F.gelu(self.dense(hidden), approximate=self.approximate))  # type: ignore[no-any-return]


PRETRAINING_HEADS: dict[PretrainingHead, Callable[[EncoderConfig], nn.Module]] = {
    "masked_lm": MaskedLMHead,
    "next_sentence": lambda encoder: nn.Linear(encoder.hidden, 2),
    "replaced_tokens": ReplacedTokensHead,
}
"""The heads of pre-training, which a model may have several of, by the setting that asks for it."""
