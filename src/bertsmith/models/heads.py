"""What stands on an encoder: the pooler and the prediction heads."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.models.encoder import Pooling
from bertsmith.shapes import AtTargets, Hidden, Logits, Offsets, Pooled, Table

Predicts = Literal["class", "classes", "number", "tags", "span", "choice"]
"""What a head on top of the encoder tells: one class of a text, any number of classes, a number or
several, a tag of each token, where an answer begins and ends, which of several texts is right."""

HeadName = Literal["classify", "tag", "span", "choose"]

HEADS: dict[Predicts, HeadName] = {
    "class": "classify",
    "classes": "classify",
    "number": "classify",
    "tags": "tag",
    "span": "span",
    "choice": "choose",
}
"""The head for each: a matrix over what is read, whose outputs mean different things."""

READS_FIRST = frozenset({"classify", "choose"})
"""Heads that read the pooled first token of a sequence; the others read every token."""


class Pooler(nn.Module):
    """The first token's hidden state through a dense layer and tanh (Devlin et al. 2018: C).

    In the classifiers of DistilBERT it is a ReLU, and in those of RoBERTa (Liu et al. 2019) there
    is dropout before the layer too.
    """

    def __init__(self, hidden: int, pooling: Pooling = "tanh", dropout: float = 0.0) -> None:
        super().__init__()
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(hidden, hidden)

    def forward(self, hidden: Hidden, starts: Offsets) -> Pooled:
        """From (tokens, hidden) and where sequences begin, (sequences,), to (sequences, hidden)."""
        pooled = self.dense(self.dropout(hidden[starts]))
        return pooled.relu() if self.pooling == "relu" else pooled.tanh()  # type: ignore[no-any-return]


class MaskedLMHead(nn.Module):
    """Predicts token ids; its output matrix is the token embedding table (tied), plus a bias.

    `width` is that of the table, the encoder's `hidden` but in an ALBERT.
    """

    def __init__(
        self, hidden: int, width: int, vocabulary: int, norm_epsilon: float, approximate: str
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.approximate = approximate

    def forward(self, hidden: AtTargets, table: Table) -> Logits:
        """Logits (targets, vocabulary) of the tokens at the positions given, (targets, hidden)."""
        return F.linear(self.features(hidden), table, self.bias)

    def features(self, hidden: AtTargets) -> Tensor:
        """What the table is multiplied with, as wide as it."""
        return self.norm(F.gelu(self.dense(hidden), approximate=self.approximate))  # type: ignore[no-any-return]
