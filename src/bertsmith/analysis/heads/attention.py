"""Attention weights of a whole batch, computed from tapped queries and keys.

Weights of one sequence at a time cost more in calls than in arithmetic. Here the sequences of a
batch, which are of similar length, are rows of a padded block; a layer's weights of a block live
only until they have been counted, so memory depends on the batch alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.examples import EncodedExamples, evaluation_batches
from bertsmith.engine.answers import finite
from bertsmith.network.attention.layout import SequenceLayout
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig
from bertsmith.network.encoded import Encoded, Taps
from bertsmith.network.encoder import layouts_of_layers
from bertsmith.network.model import Model, forward_only

# attention weights of a layer at once: 8 MiB
_ENTRIES = 2**21
# low enough that its softmax is zero, and finite: zero times it is zero
_UNSEEN = -1e30


@dataclass(frozen=True, slots=True)
class Block:
    """Some sequences of a batch, padded to the longest of them.

    `rows` (sequences, places) are the tokens of the batch, `real` (sequences, places) says which
    of them belong to the sequence. `first` is the number of the first sequence.
    """

    rows: Tensor
    real: Tensor
    first: int

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.rows)

    @property
    def places(self) -> int:
        """Tokens of the longest sequence."""
        return self.rows.shape[1]


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """The attention of a layer in a block.

    `weights` (sequences, heads, queries, keys) are zero at padding keys, and in the rows of padding
    queries too; `entropy` (sequences, heads, queries) is in nats, zero at padding queries.
    """

    layer: int
    weights: Tensor
    entropy: Tensor


@dataclass(frozen=True, slots=True)
class Scan:
    """A block of a corpus: the `units` of its sequences, its batch, and its layers to be read once.

    All sequences of the corpus are units of one sequence.
    """

    units: NDArray[np.int64]
    batch: Batch
    block: Block
    layers: Iterator[LayerAttention]


def scan(model: Model, encoded: EncodedExamples) -> Iterator[Scan]:
    """Yield the attention of all sequences, block by block, without dropout and gradients."""
    config = model.config.encoder
    with forward_only(model, "fp32"):
        for units, packed in evaluation_batches(encoded):
            batch = packed.to(model.device)
            inside = tapped(model, batch)
            for block in blocks(batch, config.heads):
                block_units = units[block.first : block.first + block.sequences]
                yield Scan(block_units, batch, block, attention(inside, batch, block, config))


def tapped(model: Model, batch: Batch) -> Encoded:
    """Run the encoder and keep the queries and keys of all layers."""
    layers = frozenset(range(1, model.config.encoder.layers + 1))
    return model.encoder(batch, selected=batch.ids[:0], taps=Taps(qkv=layers))  # type: ignore[no-any-return]


def blocks(batch: Batch, heads: int) -> Iterator[Block]:
    """Yield the sequences of a batch in order, as many at once as memory allows."""
    begin = 0
    while begin < batch.sequences:
        end, longest = begin, 0
        while end < batch.sequences:
            wider = max(longest, batch.lengths[end])
            if end > begin and heads * (end + 1 - begin) * wider**2 > _ENTRIES:
                break
            longest, end = wider, end + 1
        lengths = torch.tensor(batch.lengths[begin:end], device=batch.ids.device)
        position = torch.arange(longest, device=batch.ids.device)
        real = position < lengths[:, None]
        rows = torch.where(real, batch.offsets[begin:end, None] + position, 0)
        yield Block(rows=rows, real=real, first=begin)
        begin = end


def attention(
    encoded: Encoded, batch: Batch, block: Block, config: EncoderConfig
) -> Iterator[LayerAttention]:
    """Yield the attention of each layer in a block."""
    for layer, spans in enumerate(layouts_of_layers(config, batch), 1):
        query, key, _ = encoded.qkv[layer]
        q, k = (tensor[block.rows].transpose(1, 2) for tensor in (query, key))
        scores = (q @ k.transpose(-1, -2)).float() / math.sqrt(q.shape[-1])
        scores.add_(_unseen(block, spans))
        total = finite(scores.logsumexp(-1))
        weights = (scores - total[..., None]).exp_()
        entropy = total - (weights * scores).sum(-1)
        real = block.real[:, None]
        yield LayerAttention(
            layer=layer, weights=weights.mul_(real[..., None]), entropy=entropy.mul_(real)
        )


def _unseen(block: Block, spans: SequenceLayout) -> Tensor:
    """Return the mask that is added to scores, (sequences, 1, queries or 1, keys)."""
    unseen = ~block.real[:, None, None]
    position = torch.arange(block.places, device=block.rows.device)
    ahead = position[None, :] - position[:, None]
    if spans.causal:
        unseen = unseen | (ahead > 0)
    if spans.window is not None:
        unseen = unseen | (ahead.abs() > spans.window)
    # every query sees something, padding too
    unseen = unseen & (ahead != 0)
    return torch.zeros(unseen.shape, device=unseen.device).masked_fill_(unseen, _UNSEEN)
