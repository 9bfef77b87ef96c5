"""Outputs of the heads: class probabilities, numbers, options, tags and spans."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.examples import TOKENS_PER_BATCH, EncodedExamples, evaluation_batches
from bertsmith.core.errors import NonFiniteOutputs
from bertsmith.core.shapes import TagLogits
from bertsmith.network.batch import Batch, moved
from bertsmith.network.config import Precision
from bertsmith.network.encoded import Encoded
from bertsmith.network.model import Model, forward_only

# a GPU has thousands of units to keep busy; TOKENS_PER_BATCH suits the caches of a processor
GPU_TOKENS_PER_BATCH = 32_768

Computed = tuple[NDArray[np.int64], Batch, Tensor]
"""The numbers of units, their batch and its outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """The settings of forward passes.

    `tokens_per_batch` is None for as many as suit the device. `precision` is that of torch's
    autocast, in which the network computes; `alone`, every unit is a batch of its own, so that its
    outputs do not depend on others by a bit.
    """

    tokens_per_batch: int | None = None
    precision: Precision = "fp32"
    alone: bool = False

    def batches(
        self, model: Model, examples: EncodedExamples
    ) -> Iterator[tuple[NDArray[np.int64], Batch]]:
        """Yield all units in batches on the model's device, with their indices.

        As long as they are read, the model is in evaluation mode and no gradients are kept.
        """
        with forward_only(model, self.precision):
            usual = GPU_TOKENS_PER_BATCH if model.device.type == "cuda" else TOKENS_PER_BATCH
            tokens = 1 if self.alone else self.tokens_per_batch or usual
            for units, batch in evaluation_batches(examples, tokens_per_batch=tokens):
                yield units, batch.to(model.device)


FORWARD = Forward()


def fetched(computed: Generator[Computed, None, None]) -> Iterator[Computed]:
    """Yield outputs on the host, as float32; raises `NonFiniteOutputs` unless all are finite.

    A GPU is given the next batch before the outputs of one are waited for.
    """
    waiting: list[tuple[Computed, torch.cuda.Event]] = []
    # what computes has put the model in evaluation mode, and an error would keep it alive
    with closing(computed):
        for units, batch, outputs in computed:
            if not outputs.is_cuda:
                yield units, batch, finite(outputs)
                continue
            copied = torch.empty(outputs.shape, dtype=outputs.dtype, pin_memory=True)
            copied.copy_(outputs, non_blocking=True)
            stream = torch.cuda.current_stream(outputs.device)
            waiting.append(((units, batch, copied), stream.record_event()))
            if len(waiting) > 1:
                yield _waited_for(*waiting.pop(0))
        for item in waiting:
            yield _waited_for(*item)


def _waited_for(computed: Computed, copied: torch.cuda.Event) -> Computed:
    copied.synchronize()
    units, batch, outputs = computed
    return units, batch, finite(outputs)


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


def probability_of(logit: float) -> float:
    """Return the probability of a logit in float64; in float32 it is 1 for all from 17 on."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    odds = math.exp(logit)
    return odds / (1 + odds)


def text_outputs(
    model: Model, examples: EncodedExamples, forward: Forward = FORWARD
) -> NDArray[np.float32]:
    """Return the classifier's outputs for every text, (texts, labels), means over its windows."""
    sequences = np.diff(examples.starts)
    results = np.empty((len(examples), len(model.config.labels)), np.float32)
    for units, _, logits in _pooled_outputs(model, model.classify, examples, forward):
        results[units] = _means(logits.numpy(), sequences[units])
    return results


def option_scores(
    model: Model, examples: EncodedExamples, forward: Forward = FORWARD
) -> list[NDArray[np.float32]]:
    """Return for every question the probability of each of its options, (options,)."""
    sequences = np.diff(examples.starts)
    results: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(examples)
    for units, _, scores in _pooled_outputs(model, model.choose, examples, forward):
        parts = scores.split(sequences[units].tolist())
        for unit, part in zip(units.tolist(), parts, strict=True):
            results[unit] = part.softmax(-1).numpy()
    return results


def _pooled_outputs(
    model: Model,
    head: Callable[[Encoded, Batch], Tensor],
    examples: EncodedExamples,
    forward: Forward,
) -> Iterator[Computed]:
    """Yield the outputs of a head that reads the pooler."""
    # the last layer works for the tokens that the pooler reads
    return fetched(
        (units, batch, head(model.encoder(batch, selected=model.pooled_tokens(batch)), batch))
        for units, batch in forward.batches(model, examples)
    )


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
    for units, _, logits in _pooled_outputs(model, model.next_sentence, examples, forward):
        results[units] = logits.softmax(-1)[:, 0].numpy()
    return results


def tag_probabilities(
    model: Model, examples: EncodedExamples, forward: Forward = FORWARD
) -> list[NDArray[np.float32]]:
    """Return for every unit the probability of each tag at each position, (positions, labels)."""
    assert examples.positions is not None
    positions = examples.positions
    results: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(examples)
    computed = (
        (units, batch, _tags(model, batch, [positions[unit] for unit in units.tolist()]))
        for units, batch in forward.batches(model, examples)
    )
    for units, _, logits in fetched(computed):
        sizes = [len(positions[unit]) for unit in units.tolist()]
        for unit, part in zip(units.tolist(), logits.softmax(-1).split(sizes), strict=True):
            results[unit] = part.numpy()
    return results


def _tags(model: Model, batch: Batch, positions: Sequence[NDArray[np.integer]]) -> TagLogits:
    """Return the logits (queried tokens, labels) at positions of each sequence."""
    starts = np.cumsum(batch.lengths) - batch.lengths
    tokens = [start + queried for start, queried in zip(starts, positions, strict=True)]
    selected = moved(torch.from_numpy(np.concatenate(tokens)), model.device)
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
    computed = (
        (units, batch, model.span(model.encoder(batch).last))
        for units, batch in forward.batches(model, examples)
    )
    for units, batch, logits in fetched(computed):
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
