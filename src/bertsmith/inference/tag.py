"""Tags of words."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batches.batch import Batch
from bertsmith.batches.examples import TOKENS_PER_BATCH, EncodedExamples, evaluation_batches
from bertsmith.evaluation.forward_only import Precision, forward_only
from bertsmith.models.model import Model
from bertsmith.shapes import TagLogits


def tag_probabilities(
    model: Model,
    examples: EncodedExamples,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> list[NDArray[np.float32]]:
    """For every unit the probability of every tag at each of its places, (places, labels)."""
    assert examples.places is not None
    found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(examples)
    with forward_only(model, precision):
        for units, packed in evaluation_batches(examples, tokens_per_batch=tokens_per_batch):
            batch = packed.to(model.device)
            places = [examples.places[unit] for unit in units.tolist()]
            at = torch.from_numpy(np.concatenate(places)).to(model.device)
            sizes = torch.tensor([len(each) for each in places])
            at = at + batch.starts.repeat_interleave(sizes.to(model.device))
            shares = _tags(model, batch, at).float().softmax(-1).cpu()
            for unit, part in zip(units.tolist(), shares.split(sizes.tolist()), strict=True):
                found[unit] = part.numpy()
    return found


def _tags(model: Model, batch: Batch, at: torch.Tensor) -> TagLogits:
    # the last layer works for the tokens that are asked, where these are few
    read = at if 0 < len(at) <= batch.tokens // 2 else None
    return model.tag(model.encoder(batch, read).index_select(0, at))
