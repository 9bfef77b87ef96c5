"""Gradient of a loss by the attention to a kind of token (Clark et al. 2019, section 3.2).

Where attention to [SEP] is high and the gradient of the loss by it is small, the head does nothing
there: it attends to [SEP] when what it looks for is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.analysis.heads.attention import blocks
from bertsmith.analysis.heads.statistics import ROLES, TokenRoles
from bertsmith.batches.examples import EncodedExamples, evaluation_batches
from bertsmith.core.log import progress
from bertsmith.core.streams import Purpose, stream, uniform
from bertsmith.network.batch import Batch
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer

_MASKED = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientFigures:
    """Mean absolute gradients of a loss by attention weights.

    `means` (layers, heads, roles) are over all pairs of a query and a key of that role; `loss`
    names the loss, of one text.
    """

    loss: str
    means: NDArray[np.float64]

    def of(self, role: str) -> NDArray[np.float64]:
        """Return the means (layers, heads) of keys of a role."""
        return self.means[..., ROLES.index(role)]


def loss_name(model: Model) -> str | None:
    """Return the loss whose gradient is taken, None if the model has no head that gives one."""
    if "masked_lm" in model.heads and not model.config.encoder.causal:
        return "masked-LM loss at 15 % of the tokens"
    if model.config.head == "classify" and len(model.config.labels) > 1:
        return "cross-entropy of the predicted class"
    return None


def attention_gradients(
    model: Model, tokenizer: Tokenizer, encoded: EncodedExamples
) -> GradientFigures | None:
    """Return the gradients over some texts; None if the model has no head that gives a loss.

    The model is to be in evaluation mode: nothing is dropped.
    """
    name = loss_name(model)
    if name is None:
        return None
    config, roles = model.config.encoder, TokenRoles(tokenizer)
    sums = np.zeros((config.layers, config.heads, len(ROLES)))
    pairs = np.zeros(len(ROLES))
    with progress("gradients", len(encoded), "texts") as bar:
        for units, packed in evaluation_batches(encoded):
            batch, positions = packed.to(model.device), None
            if "masked_lm" in model.heads:
                batch, positions = masked(batch, tokenizer, units.tolist())
            gradients = _gradients(model, batch, packed.ids, positions)
            for block in blocks(batch, config.heads):
                keys = roles.of_block(batch, block)
                for row in range(block.sequences):
                    number = block.first + row
                    length = batch.lengths[number]
                    own = keys[row, :length]
                    for layer, gradient in enumerate(gradients):
                        result = gradient[number].abs().sum(1) @ own
                        sums[layer] += result.double().cpu().numpy()
                    pairs += length * own.sum(0).double().cpu().numpy()
            bar.advance(batch.sequences)
    with np.errstate(invalid="ignore"):
        return GradientFigures(loss=name, means=sums / pairs)


def _gradients(
    model: Model, batch: Batch, original: Tensor, positions: Tensor | None
) -> list[tuple[Tensor, ...]]:
    """Return the gradients of each layer's weights, by sequence; each text has its own loss."""
    layers = range(1, model.config.encoder.layers + 1)
    with torch.enable_grad():
        inside = model.encoder(batch, taps=Taps(weights=frozenset(layers)))
        if positions is None:
            logits = model.classify(inside, batch)
            loss = F.cross_entropy(logits, logits.argmax(-1), reduction="sum")
        else:
            logits = model.masked_lm(inside.last[positions])
            wanted = original.to(positions.device)[positions]
            owner = torch.searchsorted(batch.offsets, positions, right=True) - 1
            counts = owner.bincount(minlength=batch.sequences)
            losses = F.cross_entropy(logits, wanted, reduction="none")
            # the mean of each text
            loss = (losses / counts[owner]).sum()
        flat = [item for layer in layers for item in inside.weights[layer]]
        result = torch.autograd.grad(loss, flat)
    count = batch.sequences
    return [result[at : at + count] for at in range(0, len(result), count)]


def masked(batch: Batch, tokenizer: Tokenizer, numbers: Sequence[int]) -> tuple[Batch, Tensor]:
    """Return the batch with the mask in place of some tokens of each text, and their places.

    At least one token of each text, by the text's number; special ones only where there are no
    others.
    """
    positions = []
    ids = batch.ids.cpu().numpy()
    special = np.isin(ids, sorted(tokenizer.special_ids))
    begins = batch.offsets.tolist()
    for number, begin, length in zip(numbers, begins, batch.lengths, strict=False):
        drawn = uniform(stream(Purpose.INSPECTED_MASKS, number), np.arange(length))
        drawn = drawn + special[begin : begin + length]
        chosen = np.flatnonzero(drawn < _MASKED)
        positions.append(begin + (chosen if len(chosen) else np.array([drawn.argmin()])))
    at = torch.from_numpy(np.concatenate(positions)).to(batch.ids.device)
    return replace(batch, ids=batch.ids.index_fill(0, at, tokenizer.mask_id)), at
