"""What a model says of whole texts: probabilities of classes, numbers, the best of options."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.batch import Batch
from bertsmith.batches.examples import TOKENS_PER_BATCH, EncodedExamples, evaluation_batches
from bertsmith.evaluation.forward_only import Precision, forward_only
from bertsmith.models.model import Model
from bertsmith.shapes import Hidden


def class_probabilities(
    model: Model,
    examples: EncodedExamples,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> NDArray[np.float32]:
    """The probability of every class for every text, (texts, labels); each text has one class."""
    logits = text_outputs(model, examples, tokens_per_batch=tokens_per_batch, precision=precision)
    return torch.from_numpy(logits).softmax(-1).numpy()


def label_probabilities(
    model: Model,
    examples: EncodedExamples,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> NDArray[np.float32]:
    """The probability of every output for every text, (texts, labels), each for itself."""
    logits = text_outputs(model, examples, tokens_per_batch=tokens_per_batch, precision=precision)
    return torch.from_numpy(logits).sigmoid().numpy()


def text_outputs(
    model: Model,
    examples: EncodedExamples,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> NDArray[np.float32]:
    """The classifier's outputs for every text, (texts, labels); means over a text's windows."""
    sequences = np.diff(examples.starts)
    found = np.empty((len(examples), len(model.config.labels)), np.float32)
    with forward_only(model, precision):
        for units, packed in evaluation_batches(examples, tokens_per_batch=tokens_per_batch):
            batch = packed.to(model.device)
            logits = model.classify(_hidden(model, batch), batch)
            found[units] = _means(_host(logits), sequences[units])
    return found


def option_scores(
    model: Model,
    examples: EncodedExamples,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> list[NDArray[np.float32]]:
    """For every question the probability of each of its options, (options,)."""
    sequences = np.diff(examples.starts)
    found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(examples)
    with forward_only(model, precision):
        for units, packed in evaluation_batches(examples, tokens_per_batch=tokens_per_batch):
            batch = packed.to(model.device)
            scores = model.choose(_hidden(model, batch), batch).float().cpu()
            parts = scores.split(sequences[units].tolist())
            for unit, part in zip(units.tolist(), parts, strict=True):
                found[unit] = part.softmax(-1).numpy()
    return found


def _hidden(model: Model, batch: Batch) -> Hidden:
    # the last layer works for the tokens that the pooler reads
    return model.encoder(batch, model.pooled_places(batch))  # type: ignore[no-any-return]


def _host(values: Tensor) -> NDArray[np.float32]:
    return values.float().cpu().numpy()


def _means(outputs: NDArray[np.float32], sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """Means over runs of rows of these sizes."""
    if len(sizes) == len(outputs):
        return outputs
    begins = np.cumsum(sizes) - sizes
    means: NDArray[np.float32] = np.add.reduceat(outputs, begins, axis=0)
    means /= sizes[:, None].astype(np.float32)
    return means
