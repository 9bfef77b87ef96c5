"""Outputs of the heads: class probabilities, numbers, options, tags and spans."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.examples import TOKENS_PER_BATCH, EncodedExamples, evaluation_batches
from bertsmith.core.errors import NonFiniteOutputs
from bertsmith.core.shapes import TagLogits
from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.encoded import Encoded
from bertsmith.network.model import Model, forward_only


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """The settings of forward passes.

    `precision` is that of torch's autocast, in which the network computes; `alone`, every unit is a
    batch of its own, so that its outputs do not depend on others by a bit.
    """

    tokens_per_batch: int = TOKENS_PER_BATCH
    precision: Precision = "fp32"
    alone: bool = False

    def batches(
        self, model: Model, examples: EncodedExamples
    ) -> Iterator[tuple[NDArray[np.int64], Batch]]:
        """Yield all units in batches on the model's device, with their indices.

        As long as they are read, the model is in evaluation mode and no gradients are kept.
        """
        with forward_only(model, self.precision):
            tokens = 1 if self.alone else self.tokens_per_batch
            for units, batch in evaluation_batches(examples, tokens_per_batch=tokens):
                yield units, batch.to(model.device)


FORWARD = Forward()


def finite(outputs: Tensor) -> Tensor:
    """Return outputs of a model as float32; raises `NonFiniteOutputs` unless all are finite.

    An answer could be made of any others too: the class whose score comes first.
    """
    values = outputs.float()
    # in float64 the sum of finite float32 numbers is finite
    if not math.isfinite(values.sum(dtype=torch.float64).item()):
        raise NonFiniteOutputs
    return values


def class_probabilities(
    model: Model, examples: EncodedExamples, forward: Forward = FORWARD
) -> NDArray[np.float32]:
    """Return the probability of each class for every text, (texts, labels), which has one class."""
    logits = text_outputs(model, examples, forward)
    return torch.from_numpy(logits).softmax(-1).numpy()


def label_probabilities(
    model: Model, examples: EncodedExamples, forward: Forward = FORWARD
) -> NDArray[np.float32]:
    """Return the probability of every output for every text, (texts, labels), each for itself."""
    logits = text_outputs(model, examples, forward)
    return torch.from_numpy(logits).sigmoid().numpy()


def text_outputs(
    model: Model, examples: EncodedExamples, forward: Forward = FORWARD
) -> NDArray[np.float32]:
    """Return the classifier's outputs for every text, (texts, labels), means over its windows."""
    sequences = np.diff(examples.starts)
    results = np.empty((len(examples), len(model.config.labels)), np.float32)
    for units, batch in forward.batches(model, examples):
        logits = model.classify(_at_pooled(model, batch), batch)
        results[units] = _means(finite(logits).cpu().numpy(), sequences[units])
    return results


def option_scores(
    model: Model, examples: EncodedExamples, forward: Forward = FORWARD
) -> list[NDArray[np.float32]]:
    """Return for every question the probability of each of its options, (options,)."""
    sequences = np.diff(examples.starts)
    results: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(examples)
    for units, batch in forward.batches(model, examples):
        scores = finite(model.choose(_at_pooled(model, batch), batch)).cpu()
        parts = scores.split(sequences[units].tolist())
        for unit, part in zip(units.tolist(), parts, strict=True):
            results[unit] = part.softmax(-1).numpy()
    return results


def _at_pooled(model: Model, batch: Batch) -> Encoded:
    # the last layer works for the tokens that the pooler reads
    return model.encoder(batch, selected=model.pooled_tokens(batch))  # type: ignore[no-any-return]


def _means(outputs: NDArray[np.float32], sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return means over runs of rows of these sizes."""
    if len(sizes) == len(outputs):
        return outputs
    begins = np.cumsum(sizes) - sizes
    means: NDArray[np.float32] = np.add.reduceat(outputs, begins, axis=0)
    means /= sizes[:, None].astype(np.float32)
    return means


def next_sentence_probabilities(
    model: Model, examples: EncodedExamples, forward: Forward = FORWARD
) -> NDArray[np.float32]:
    """Return the probability that each pair is as in the text, (pairs,).

    Of a BERT that the second text is the next one and no random one (Devlin et al. 2018, section
    3.1), of an ALBERT that the two are in order (Lan et al. 2019, section 3.1).
    """
    results = np.empty(len(examples), np.float32)
    for units, batch in forward.batches(model, examples):
        logits = finite(model.next_sentence(_at_pooled(model, batch), batch))
        results[units] = logits.softmax(-1)[:, 0].cpu().numpy()
    return results


def tag_probabilities(
    model: Model, examples: EncodedExamples, forward: Forward = FORWARD
) -> list[NDArray[np.float32]]:
    """Return for every unit the probability of each tag at each position, (positions, labels)."""
    assert examples.positions is not None
    results: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(examples)
    for units, batch in forward.batches(model, examples):
        positions = [examples.positions[unit] for unit in units.tolist()]
        selected = torch.from_numpy(np.concatenate(positions)).to(model.device)
        sizes = torch.tensor([len(position) for position in positions])
        selected = selected + batch.starts.repeat_interleave(sizes.to(model.device))
        shares = finite(_tags(model, batch, selected)).softmax(-1).cpu()
        for unit, part in zip(units.tolist(), shares.split(sizes.tolist()), strict=True):
            results[unit] = part.numpy()
    return results


def _tags(model: Model, batch: Batch, selected: torch.Tensor) -> TagLogits:
    # the last layer computes only the queried tokens, where these are few
    read = selected if 0 < len(selected) <= batch.tokens // 2 else None
    return model.tag(model.encoder(batch, selected=read).rows(selected))


MAX_ANSWER_LENGTH = 30
CANDIDATES = 20

Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A span of a text's tokens, the last one included, and its score, a sum of two logits."""

    first: int
    last: int
    score: float


def span_logits(
    model: Model, examples: EncodedExamples, forward: Forward = FORWARD
) -> list[Scores]:
    """Return for every window the logits of beginning and end at each token, (length, 2)."""
    results: list[Scores] = [np.empty(0, np.float32)] * len(examples)
    for units, batch in forward.batches(model, examples):
        logits = finite(model.span(model.encoder(batch).last)).cpu()
        for unit, part in zip(units.tolist(), logits.split(list(batch.lengths)), strict=True):
            results[unit] = part.numpy()
    return results


def candidates(logits: Scores, begin: int, allowed: NDArray[np.bool_]) -> list[Candidate]:
    """Return the best spans of a window of a text, the best first.

    `logits` (tokens, 2) are those of the text's tokens in the window, `begin` the number of the
    first; only tokens that are `allowed` (tokens,) begin a span.
    """
    tokens = len(logits)
    widths = min(MAX_ANSWER_LENGTH, tokens)
    scores = np.full((widths, tokens), -np.inf, np.float32)
    starts = np.where(allowed, logits[:, 0], -np.inf)
    for width in range(widths):
        scores[width, : tokens - width] = starts[: tokens - width] + logits[width:, 1]
    flat = scores.ravel()
    count = min(CANDIDATES, int(np.isfinite(flat).sum()))
    best = np.argpartition(-flat, count - 1)[:count] if count else np.empty(0, np.int64)
    best = best[np.argsort(-flat[best], kind="stable")]
    return [
        Candidate(begin + int(index % tokens), begin + int(index % tokens + index // tokens), score)
        for index, score in zip(best, flat[best].tolist(), strict=True)
    ]
