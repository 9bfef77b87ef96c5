"""Predictions of a masked language model at single places of many sequences.

A cloze is a sequence with one place that is to be predicted. Any number of them are packed into
batches, the last layer works for the places alone, and only these are projected to the vocabulary.
Pseudo-log-likelihoods, words of several pieces and generation with masks are made of clozes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.examples import EncodedExamples
from bertsmith.batches.truncation import Ids, Segments
from bertsmith.engine.answers import Forward, finite
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer

ROWS_PROJECTED = 256
"""Places whose logits over the whole vocabulary are computed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloze:
    """A sequence (length,) and the place in it that is to be predicted."""

    ids: Ids
    segments: Segments
    place: int


def predictions(
    model: Model,
    tokenizer: Tokenizer,
    sequences: EncodedExamples,
    positions: Sequence[Sequence[int]],
    forward: Forward,
) -> Iterator[tuple[list[tuple[int, int]], Tensor]]:
    """Yield log-probabilities (rows, vocabulary) at some `positions`, ascending, of each sequence.

    With them come the sequence of each row and the number of its place, in any order. A table may
    have more rows than there are pieces: these are no predictions.
    """
    for numbers, batch in forward.batches(model, sequences):
        own = [(number, n) for number in numbers.tolist() for n in range(len(positions[number]))]
        inside = torch.tensor([positions[number][n] for number, n in own], dtype=torch.int64)
        sizes = torch.tensor([len(positions[number]) for number in numbers.tolist()])
        starts = batch.starts.repeat_interleave(sizes.to(batch.ids.device))
        tokens = starts + inside.to(batch.ids.device)
        rows = model.encoder(batch, selected=tokens).last
        for begin in range(0, len(own), ROWS_PROJECTED):
            part = slice(begin, begin + ROWS_PROJECTED)
            logits = model.masked_lm(rows[part])[:, : tokenizer.size]
            yield own[part], finite(logits).log_softmax(-1)


def cloze_predictions(
    model: Model, tokenizer: Tokenizer, clozes: Sequence[Cloze], forward: Forward
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield numbers of clozes, in any order, and the log-probabilities there."""
    sequences = EncodedExamples.of(
        [cloze.ids for cloze in clozes], [cloze.segments for cloze in clozes]
    )
    positions = [[cloze.place] for cloze in clozes]
    for keys, shares in predictions(model, tokenizer, sequences, positions, forward):
        yield [number for number, _ in keys], shares


def log_probabilities(
    model: Model,
    tokenizer: Tokenizer,
    clozes: Sequence[Cloze],
    targets: Sequence[Sequence[int]],
    forward: Forward,
) -> list[NDArray[np.float64]]:
    """Return the log-probability of each of the `targets` of each cloze, (targets,) per cloze."""
    results: list[NDArray[np.float64]] = [np.empty(0)] * len(clozes)
    for numbers, shares in cloze_predictions(model, tokenizer, clozes, forward):
        requested = [targets[number] for number in numbers]
        sizes = [len(request) for request in requested]
        rows = torch.arange(len(numbers)).repeat_interleave(torch.tensor(sizes))
        flat = torch.tensor([item for wanted in requested for item in wanted], dtype=torch.int64)
        values = shares[rows.to(shares.device), flat.to(shares.device)].double().cpu()
        for number, part in zip(numbers, values.split(sizes), strict=True):
            results[number] = part.numpy()
    return results
