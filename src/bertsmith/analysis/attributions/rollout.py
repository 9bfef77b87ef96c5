"""Attention rollout (Abnar & Zuidema 2020): how much of each token reaches an answer.

The attention of a layer is the mean of its heads, half of it replaced by the identity for the
residual connection. The product over the layers says what share of each input token there is in
each output token, if attention were all that mixes them; it does not depend on the answer, only on
where it is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.analysis.attributions.subjects import Subject
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only


def rolled_out(weights: Sequence[Tensor]) -> Tensor:
    """Return (length, length), rows by output token, of the weights of all layers.

    Those of a layer are (heads, length, length), rows by query; the first layer comes first.
    """
    length = weights[0].shape[-1]
    shares = torch.eye(length, dtype=torch.float64)
    for layer in weights:
        mixed = (layer.double().mean(0).cpu() + torch.eye(length, dtype=torch.float64)) / 2
        shares = mixed / mixed.sum(-1, keepdim=True) @ shares
    return shares


def attention_rollout(model: Model, subject: Subject) -> NDArray[np.float64]:
    """Return the share of each token, (length,), at the tokens that the answer is read from."""
    batch = subject.copies([subject.ids]).to(model.device)
    layers = range(1, model.config.encoder.layers + 1)
    with forward_only(model, "fp32"):
        encoded = model.encoder(batch, taps=Taps(weights=frozenset(layers)))
    shares = rolled_out([encoded.weights[layer][0] for layer in layers])
    return shares[list(subject.target.places)].mean(0).numpy()
