"""A linear layer over a vocabulary and its cross-entropy, on a GPU in bf16.

As `cross_entropy` does it on a processor: the logits become their gradient where they lie, by one
kernel, so that there is one array of their size in place of five. The table is padded to a multiple
of 64 entries, as products are up to several times slower where rows begin at odd addresses.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertsmith.network.fused.device import on_device

STEP, BLOCK, WARPS = 64, 4096, 8


@triton.jit
@no_type_check
def _rows_loss(
    logits, bias, labels, losses, correct,
    CLASSES: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row).to(tl.int32)
    begin = logits + row * STRIDE
    # finite, so that the difference of two is a number where all logits yet are -inf
    best, total = -3.0e38, 0.0
    own, best_other = -float("inf"), -float("inf")
    for first in range(0, CLASSES, BLOCK):
        column = first + tl.arange(0, BLOCK)
        value = _biased(begin, bias, column, CLASSES, STRIDE)
        is_own = column == label
        own = tl.maximum(own, tl.max(tl.where(is_own, value, -float("inf")), 0))
        best_other = tl.maximum(best_other, tl.max(tl.where(is_own, -float("inf"), value), 0))
        top = tl.maximum(best, tl.max(value, 0))
        total = total * tl.exp(best - top) + tl.sum(tl.exp(value - top), 0)
        best = top
    tl.store(losses + row, tl.log(total) + best - own)
    tl.store(correct + row, (own > best_other).to(tl.int32))
    if GRADIENT:
        scale = 1.0 / total
        for first in range(0, STRIDE, BLOCK):
            column = first + tl.arange(0, BLOCK)
            value = _biased(begin, bias, column, CLASSES, STRIDE)
            slope = tl.exp(value - best) * scale - tl.where(column == label, 1.0, 0.0)
            slope = slope.to(logits.dtype.element_ty)
            tl.store(begin + column, slope, mask=column < STRIDE)


@triton.jit
@no_type_check
def _biased(begin, bias, column, CLASSES: tl.constexpr, STRIDE: tl.constexpr):
    """Logits of a row, -inf beyond the classes."""
    # up to the stride: words of 16 bytes are read only below a multiple of their size
    value = tl.load(begin + column, mask=column < STRIDE, other=0.0).to(tl.float32)
    value += tl.load(bias + column, mask=column < CLASSES, other=0.0).to(tl.float32)
    return tl.where(column < CLASSES, value, -float("inf"))


def fused_linear_cross_entropy(
    features: Tensor, table: Tensor, bias: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the summed loss in float32 and the number right, products computed in bf16.

    `features` (targets, width), `table` (classes, width), `bias` (classes,), `labels` (targets,).
    """
    loss: Tensor
    loss, correct = _LinearCrossEntropy.apply(features, table, bias, labels)  # type: ignore[no-untyped-call]
    return loss, correct


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401
        features: Tensor,
        table: Tensor,
        bias: Tensor,
        labels: Tensor,
    ) -> tuple[Tensor, Tensor]:
        rows, (classes, width) = len(features), table.shape
        half = features.to(torch.bfloat16).contiguous()
        padded = half.new_empty(-(-classes // STEP) * STEP, width)
        padded[:classes].copy_(table)
        padded[classes:].zero_()
        logits = half @ padded.mT
        losses = half.new_empty(rows, dtype=torch.float32)
        correct = half.new_empty(rows, dtype=torch.int32)
        with on_device(half):
            _rows_loss[(rows,)](
                logits, bias, labels.contiguous(), losses, correct,
                CLASSES=classes, STRIDE=len(padded), BLOCK=BLOCK,
                GRADIENT=any(context.needs_input_grad[:3]), num_warps=WARPS,
            )  # fmt: skip
        context.save_for_backward(half, padded)
        context.logits = logits
        context.kinds = features.dtype, table.dtype, bias.dtype
        context.classes = classes
        total, right = losses.sum(), correct.sum()
        context.mark_non_differentiable(right)
        return total, right

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        half, padded = context.saved_tensors
        logits, kinds, classes = context.logits, context.kinds, context.classes
        wants_features, wants_table, wants_bias, _ = context.needs_input_grad
        to_features = (logits @ padded).to(kinds[0]) * gradient if wants_features else None
        to_table = to_bias = None
        if wants_table:
            to_table = (logits.mT @ half)[:classes].to(kinds[1], copy=True).mul_(gradient)
        if wants_bias:
            to_bias = logits.sum(0, dtype=torch.float32)[:classes].to(kinds[2]) * gradient
        return to_features, to_table, to_bias, None
