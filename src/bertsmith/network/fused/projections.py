"""Queries, keys and values: one product, whose backward pass joins their gradients in one kernel.

torch joins them in one pass and sums them for the bias in another.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertsmith.network.fused.device import on_device

ROWS, COLUMNS, WARPS = 8, 256, 4
# rows that a program sums
CHUNK = 128


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _join(
    query, key, value, joined, sums, rows,
    WIDTH: tl.constexpr, BLOCKS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    chunk, part = tl.program_id(0), tl.program_id(1) // BLOCKS
    column = tl.program_id(1) % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < WIDTH
    source = query
    if part == 1:
        source = key
    if part == 2:
        source = value
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(0, CHUNK, ROWS):
        row = chunk * CHUNK + begin + tl.arange(0, ROWS)
        mask = (row < rows)[:, None] & inside[None, :]
        start = row.to(tl.int64)[:, None] * WIDTH
        read = tl.load(source + start + column[None, :], mask=mask, other=0.0)
        tl.store(joined + 3 * start + part * WIDTH + column[None, :], read, mask=mask)
        total += read.to(tl.float32)
    place = 3 * chunk.to(tl.int64) * WIDTH + part * WIDTH + column
    tl.store(sums + place, tl.sum(total, 0), mask=inside)


def projections(
    inputs: Tensor, weight: Tensor, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, (rows, heads, head) each, of inputs (rows, width).

    `weight` is (3 x width, width), `bias` (3 x width,), all of one format.
    """
    parts: tuple[Tensor, Tensor, Tensor] = _Projections.apply(  # type: ignore[no-untyped-call]
        inputs, weight, bias, heads
    )
    return parts


class _Projections(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        heads: int,
    ) -> tuple[Tensor, ...]:
        inputs = inputs.contiguous()
        context.save_for_backward(inputs, weight)
        context.has_bias = bias is not None
        mixed = torch.nn.functional.linear(inputs, weight, bias)
        return mixed.view(len(inputs), 3, heads, -1).unbind(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        inputs, weight = context.saved_tensors
        rows, width = len(inputs), len(weight) // 3
        query, key, value = (gradient.contiguous() for gradient in gradients)
        joined = torch.empty(rows, 3 * width, device=inputs.device, dtype=query.dtype)
        chunks, blocks = triton.cdiv(rows, CHUNK), triton.cdiv(width, COLUMNS)
        sums = torch.empty(chunks, 3 * width, device=inputs.device, dtype=torch.float32)
        with on_device(inputs):
            _join[(chunks, 3 * blocks)](
                query, key, value, joined, sums, rows,
                WIDTH=width, BLOCKS=blocks, ROWS=ROWS, COLUMNS=COLUMNS, CHUNK=CHUNK,
                num_warps=WARPS,
            )  # fmt: skip
        to_bias = sums.sum(0).to(weight.dtype) if context.has_bias else None
        return joined @ weight, joined.mT @ inputs, to_bias, None
