"""What stands behind each [MASK] of a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertsmith.batches.examples import (
    TOKENS_PER_BATCH,
    EncodedExamples,
    encode_examples,
    evaluation_batches,
)
from bertsmith.core.errors import ExampleError
from bertsmith.engine.sequences import ROWS, text_length, windows
from bertsmith.network.batch import Batch
from bertsmith.network.model import Model, Precision, forward_only
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

# masks whose logits over the whole vocabulary are computed at once
_MASKS = 256


@dataclass(frozen=True, slots=True)
class Filling:
    """A piece as `Tokenizer.shown` has it, and the probability that it stands behind a mask."""

    piece: str
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """An example with the likeliest fillings of each of its masks, from left to right."""

    example: Example
    masks: list[list[Filling]]


def fill_mask(
    model: Model, tokenizer: Tokenizer, text: str, *, top: int = 5
) -> list[list[Filling]]:
    """The `top` likeliest pieces for each [MASK] of a text, from left to right.

    Several masks are filled independently, each beside the others still masked. Raises
    `ExampleError` when there is no mask, or when the text is longer than the model reads.
    """
    example = Example(text=text, text_pair=None, label=None, source="text", line=1)
    return next(fill_masks(model, tokenizer, [example], top=top)).masks


def fill_masks(
    model: Model,
    tokenizer: Tokenizer,
    examples: Iterable[Example],
    *,
    top: int = 5,
    among: Sequence[int] = (),
    rows: int = ROWS,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> Iterator[Filled]:
    """Fill the masks of a stream of examples, in their order and in constant memory.

    With `among`, ids of pieces, these are the fillings, in that order, whatever `top` is; their
    probabilities are still those among all pieces.

    Raises `ExampleError` as `fill_mask` does, with file and line.
    """
    for window in windows(examples, rows, text_length):
        encoded = encode_examples(
            tokenizer,
            [example.text for example in window],
            [example.text_pair for example in window],
            longest=model.config.encoder.longest,
        )
        _check(window, encoded, tokenizer, model.config.encoder.longest)
        found: dict[int, list[list[Filling]]] = {}
        with forward_only(model, precision):
            for indices, packed in evaluation_batches(encoded, tokens_per_batch=tokens_per_batch):
                fillings = _fillings(model, tokenizer, packed.to(model.device), top, among)
                found.update(zip(indices.tolist(), fillings, strict=True))
        for number, example in enumerate(window):
            yield Filled(example=example, masks=found[number])


def _fillings(
    model: Model, tokenizer: Tokenizer, batch: Batch, top: int, among: Sequence[int]
) -> list[list[list[Filling]]]:
    """For each sequence of a batch, for each of its masks, the likeliest pieces."""
    at = torch.nonzero(batch.ids == tokenizer.mask_id)[:, 0]
    encoded = model.encoder(batch, at=at)
    owners = torch.searchsorted(batch.offsets, at, right=True) - 1
    fillings: list[list[list[Filling]]] = [[] for _ in batch.lengths]
    for part, owner in zip(at.split(_MASKS), owners.split(_MASKS), strict=True):
        # a table may have more rows than there are pieces
        logits = model.masked_lm(encoded.rows(part))[:, : tokenizer.size]
        values, pieces = _chosen(logits, top, among)
        for sequence, shares, ids in zip(owner.tolist(), values, pieces, strict=True):
            fillings[sequence].append(
                [
                    Filling(tokenizer.shown(piece), share)
                    for share, piece in zip(shares, ids, strict=True)
                ]
            )
    return fillings


def _chosen(
    logits: Tensor, top: int, among: Sequence[int]
) -> tuple[list[list[float]], list[list[int]]]:
    probabilities = logits.float().softmax(-1)
    if among:
        asked = probabilities[:, list(among)].tolist()
        return asked, [list(among) for _ in asked]
    values, pieces = probabilities.topk(min(top, probabilities.shape[-1]))
    return values.tolist(), pieces.tolist()


def _check(
    window: list[Example], encoded: EncodedExamples, tokenizer: Tokenizer, longest: int
) -> None:
    mask = tokenizer.vocabulary[tokenizer.mask_id]
    for example, ids, cut in zip(window, encoded.ids, encoded.cut, strict=True):
        if cut:
            raise ExampleError(
                f"the text is longer than the {longest} tokens that the model reads",
                where=example.source,
                line=example.line,
                remedy=f"leave only what stands around {mask}",
            )
        if not np.any(ids == tokenizer.mask_id):
            raise ExampleError(
                f"no {mask} in the text",
                where=example.source,
                line=example.line,
                remedy=f"write {mask} where a word is to be filled in",
            )
