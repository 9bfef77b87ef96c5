"""Fill-mask: the likeliest pieces for each [MASK] of a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertsmith.batches.examples import (
    EncodedExamples,
    encode_examples,
)
from bertsmith.core.errors import ExampleError
from bertsmith.engine.answers import FORWARD, Forward
from bertsmith.engine.predictor import ROWS, Predictor, Request, joined, text_length
from bertsmith.network.batch import Batch
from bertsmith.network.model import Model
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

# masks whose logits over the whole vocabulary are computed at once
_MASKS = 256


@dataclass(frozen=True, slots=True)
class Filling:
    """A piece as `Tokenizer.shown` has it, and the probability that it stands behind a mask."""

    piece: str
    probability: float


Filled = list[list[Filling]]
"""The likeliest fillings of each mask of a text, from left to right."""


def fill_mask(model: Model, tokenizer: Tokenizer, text: str, *, top: int = 5) -> Filled:
    """Return the `top` likeliest pieces for each [MASK] of a text, from left to right.

    Several masks are filled independently, each beside the others still masked. Raises
    `ExampleError` when there is no mask, or when the text is longer than the model reads.
    """
    example = Example(text=text, text_pair=None, label=None, source="text", line=1)
    return next(fill_masks(model, tokenizer, [example], top=top))


def fill_masks(
    model: Model,
    tokenizer: Tokenizer,
    examples: Iterable[Example],
    *,
    top: int = 5,
    among: Sequence[int] = (),
    rows: int = ROWS,
    forward: Forward = FORWARD,
) -> Iterator[Filled]:
    """Fill the masks of a stream of examples, in their order and in constant memory.

    With `among`, ids of pieces, these are the fillings, in that order, whatever `top` is; their
    probabilities are still those among all pieces.

    Raises `ExampleError` as `fill_mask` does, with file and line.
    """
    filling = MaskFilling(model, tokenizer, top=top, among=among)
    predictor = Predictor(model=model, answering=filling, forward=forward)
    return predictor(examples, rows=rows)


class MaskFilling:
    """The answering by which a model fills masks."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, *, top: int, among: Sequence[int] = ()
    ) -> None:
        """The `top` likeliest pieces are answers, or those `among` which are asked for."""
        self._tokenizer, self._top, self._among = tokenizer, top, among
        self._longest = model.config.encoder.longest

    def characters(self, example: Example) -> int:
        """Return the length of a text or pair."""
        return text_length(example)

    def encode(self, examples: Sequence[Example]) -> EncodedExamples:
        """Encode texts with masks; raises `ExampleError` for one without, or one too long."""
        encoded = encode_examples(
            self._tokenizer,
            [example.text for example in examples],
            [example.text_pair for example in examples],
            longest=self._longest,
        )
        for example, own in zip(examples, encoded.by_row(), strict=True):
            self.check(example, own)
        return encoded

    def check(self, example: Example, encoded: EncodedExamples) -> None:
        """Raise `ExampleError` for a text without a mask, or one too long for the model."""
        mask_id = self._tokenizer.mask_id
        mask = self._tokenizer.vocabulary[mask_id]
        if encoded.cut[0]:
            what = f"the text is longer than the {self._longest} tokens that the model reads"
            remedy = f"leave only what stands around {mask}"
        elif not np.any(encoded.ids[0] == mask_id):
            what, remedy = f"no {mask} in the text", f"write {mask} where a word is to be filled in"
        else:
            return
        raise ExampleError(what, where=example.source, line=example.line, remedy=remedy)

    def outputs(
        self,
        model: Model,
        requests: Sequence[Request[Example]],
        forward: Forward,
    ) -> list[Filled]:
        """Return the likeliest pieces for each mask of each text."""
        found: list[Filled] = [[]] * len(requests)
        for indices, batch in forward.batches(model, joined(requests)):
            fillings = _fillings(model, self._tokenizer, batch, self._top, self._among)
            for index, own in zip(indices.tolist(), fillings, strict=True):
                found[index] = own
        return found

    def decode(self, request: Request[Example], output: Filled) -> Filled:
        """Return the fillings as they are."""
        del request
        return output


def _fillings(
    model: Model, tokenizer: Tokenizer, batch: Batch, top: int, among: Sequence[int]
) -> list[Filled]:
    """For each sequence of a batch, for each of its masks, the likeliest pieces."""
    at = torch.nonzero(batch.ids == tokenizer.mask_id)[:, 0]
    encoded = model.encoder(batch, at=at)
    owners = torch.searchsorted(batch.offsets, at, right=True) - 1
    fillings: list[Filled] = [[] for _ in batch.lengths]
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
