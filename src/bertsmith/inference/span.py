"""Answers as spans of a text, the best over all windows of it (Devlin et al. 2018, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import TOKENS_PER_BATCH, EncodedExamples, evaluation_batches
from bertsmith.evaluation.forward_only import Precision, forward_only
from bertsmith.models.model import Model

LONGEST_ANSWER = 30
CANDIDATES = 20

Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A span of a text's tokens, the last one included, and its score, a sum of two logits."""

    first: int
    last: int
    score: float


def span_logits(
    model: Model,
    examples: EncodedExamples,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> list[Scores]:
    """For every window the logits of beginning and end at each of its tokens, (length, 2)."""
    found: list[Scores] = [np.empty(0, np.float32)] * len(examples)
    with forward_only(model, precision):
        for units, packed in evaluation_batches(examples, tokens_per_batch=tokens_per_batch):
            batch = packed.to(model.device)
            logits = model.span(model.encoder(batch)).float().cpu()
            for unit, part in zip(units.tolist(), logits.split(list(batch.lengths)), strict=True):
                found[unit] = part.numpy()
    return found


def candidates(logits: Scores, begin: int, allowed: NDArray[np.bool_]) -> list[Candidate]:
    """The best spans of a window of a text, the best first.

    `logits` (tokens, 2) are those of the text's tokens in the window, `begin` the number of the
    first; only tokens that are `allowed` (tokens,) begin a span.
    """
    tokens = len(logits)
    widths = min(LONGEST_ANSWER, tokens)
    scores = np.full((widths, tokens), -np.inf, np.float32)
    starts = np.where(allowed, logits[:, 0], -np.inf)
    for width in range(widths):
        scores[width, : tokens - width] = starts[: tokens - width] + logits[width:, 1]
    flat = scores.ravel()
    count = min(CANDIDATES, int(np.isfinite(flat).sum()))
    best = np.argpartition(-flat, count - 1)[:count] if count else np.empty(0, np.int64)
    best = best[np.argsort(-flat[best], kind="stable")]
    return [
        Candidate(begin + int(place % tokens), begin + int(place % tokens + place // tokens), score)
        for place, score in zip(best, flat[best].tolist(), strict=True)
    ]
