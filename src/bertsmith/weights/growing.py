"""A model for a vocabulary that has grown."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

from torch import Tensor, nn

from bertsmith.models.heads import MaskedLMHead
from bertsmith.models.model import Model


def with_pieces(model: Model, size: int, replaced: Sequence[Sequence[int]]) -> Model:
    """A copy of a model with vectors for the new pieces `size`, `size` + 1, ... of its vocabulary.

    `replaced[i]` are the ids that stood for the piece `size` + i. Its row of the token table is the
    mean of theirs, and so is its bias in the masked-LM head: with both, its logit starts as the
    mean of theirs, whatever the hidden state. Rows that the table had to spare are used first.
    """
    grown = copy.deepcopy(model)
    tokens = grown.encoder.embeddings.tokens
    table = _grown(tokens.weight.detach(), size, replaced)
    encoder = dataclasses.replace(model.config.encoder, vocabulary=len(table))
    grown.config = dataclasses.replace(model.config, encoder=encoder)
    grown.encoder.config = encoder
    tokens.num_embeddings, tokens.weight = len(table), nn.Parameter(table)
    if "masked_lm" in grown.heads:
        head = grown.heads["masked_lm"]
        assert isinstance(head, MaskedLMHead)
        head.bias = nn.Parameter(_grown(head.bias.detach(), size, replaced))
    return grown


def _grown(old: Tensor, size: int, replaced: Sequence[Sequence[int]]) -> Tensor:
    new = old.new_zeros((max(len(old), size + len(replaced)), *old.shape[1:]))
    new[: len(old)] = old
    for number, ids in enumerate(replaced, start=size):
        new[number] = old[list(ids)].mean(dim=0)
    return new
