"""Shape buckets: a few padding rows, so that products on a processor have usual sizes.

In training every batch has another number of tokens and of selected tokens. Libraries compile
or tune a product by its shape and are slow at odd ones, so rows are rounded up to a bucket and the
padding rows are dropped from the result (figures: docs/experiments/training-step.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertsmith.core.shapes import SelectedTokens
from bertsmith.network.batch import Batch
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps

# rounded to _STEP from _MANY rows on, where that adds few of them, and to _FEW_STEP below
_MANY, _STEP, _FEW_STEP = 1024, 64, 16
# below, more rows cost a small network more than the compiling of few and small products
_MIN_ROWS = 512
# what a larger network gains by, where steps are small (docs/experiments/training-step.md)
_MIN_TOKENS = 64


def encode(
    encoder: Callable[..., Encoded],
    batch: Batch,
    *,
    selected: SelectedTokens | None = None,
    taps: Taps = NO_TAPS,
) -> Encoded:
    """Encode a batch in shape buckets; the output is that of the batch without padding rows.

    `Encoded.selected` may hold some tokens more than `selected`.
    """
    padded = batch
    if not batch.ids.is_cuda:
        padded = pad_batch(batch) if torch.is_grad_enabled() else batch
        selected = None if selected is None else pad_selection(selected, batch.tokens)
    encoded: Encoded = encoder(padded, selected=selected, taps=taps)
    if padded is batch:
        return encoded
    return replace(
        encoded,
        last=encoded.last if selected is not None else encoded.last[: batch.tokens],
        states={n: state[: batch.tokens] for n, state in encoded.states.items()},
        qkv={n: (q[: batch.tokens], k[: batch.tokens], v[: batch.tokens])
             for n, (q, k, v) in encoded.qkv.items()},
        weights={n: weight[: batch.sequences] for n, weight in encoded.weights.items()},
    )  # fmt: skip


def round_up(rows: int, min_rows: int = _MIN_ROWS) -> int:
    """Return the number of rows rounded up to a multiple of 64, or of 16 below 1,024.

    Below `min_rows` it stays as it is.
    """
    if rows < min_rows:
        return rows
    step = _STEP if rows >= _MANY else _FEW_STEP
    return -(-rows // step) * step


def pad_batch(batch: Batch) -> Batch:
    """Return the batch with one sequence more where that fills its bucket."""
    padding = round_up(batch.tokens, _MIN_TOKENS) - batch.tokens
    if not padding:
        return batch
    more = batch.ids.new_zeros(padding)
    return replace(
        batch,
        ids=torch.cat([batch.ids, more]),
        segments=torch.cat([batch.segments, more]),
        positions=torch.cat([batch.positions, more]),
        offsets=torch.cat([batch.offsets, batch.offsets[-1:] + padding]),
        lengths=(*batch.lengths, padding),
    )


def pad_selection(selected: SelectedTokens, tokens: int) -> Tensor:
    """Return the selection, in order, with some of the other tokens to fill its bucket."""
    padding = round_up(len(selected)) - len(selected)
    if not padding:
        return selected
    others = torch.ones(tokens, dtype=torch.bool)
    others[selected] = False
    return torch.cat([selected, others.nonzero().flatten()[:padding]]).sort().values


def pad_targets(positions: SelectedTokens) -> Tensor:
    """Return tokens to be read with token 0 repeated where that fills their bucket."""
    if positions.is_cuda:
        return positions
    return F.pad(positions, (0, round_up(len(positions)) - len(positions)))
