"""The rows of the token table that training meets, for as long as it lasts.

A small set of texts has a few thousand of thirty thousand pieces. With the whole table, each step
clears a gradient for all rows, measures its norm and moves all moments, which takes a fifth of the
time of a small network on sentences (docs/log.md). Rows that no training text has get no gradient:
AdamW would do nothing to them but shrink them by its decay, and here they stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from bertsmith.batches.examples import EncodedExamples
from bertsmith.models.model import Model

# of all rows; with more there is little to be had
_MOST = 0.7


@contextmanager
def met_rows(model: Model, examples: EncodedExamples) -> Iterator[EncodedExamples]:
    """A model with the rows of these examples' tokens only, and the examples with their new ids.

    The table is whole again afterwards. Nothing happens where most rows are met, where the table is
    not trained, or where another part of the model reads it.
    """
    embeddings = model.encoder.embeddings
    whole = embeddings.tokens
    met = np.unique(np.concatenate(examples.ids))
    rows = whole.num_embeddings
    if model.config.masked_lm or not whole.weight.requires_grad or len(met) > _MOST * rows:
        yield examples
        return
    places = torch.from_numpy(met.astype(np.int64)).to(model.device)
    embeddings.tokens = nn.Embedding.from_pretrained(whole.weight.detach()[places], freeze=False)
    number = np.zeros(rows, np.int32)
    number[met] = np.arange(len(met))
    try:
        yield replace(examples, ids=[number[ids] for ids in examples.ids])
    finally:
        with torch.no_grad():
            whole.weight[places] = embeddings.tokens.weight
        embeddings.tokens = whole
