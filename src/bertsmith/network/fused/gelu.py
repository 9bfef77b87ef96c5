"""A product's bias and the GELU (Hendrycks & Gimpel 2016), as one kernel.

It takes as long as the GELU alone. What is saved is the bias's gradient, a pass over the widest
tensor of a block, which the backward pass sums while it writes that tensor.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertsmith.network.fused.device import on_device

ROWS, COLUMNS, WARPS = 8, 256, 4
# rows that a program of the backward pass sums
CHUNK = 128


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _forward(
    product, bias, output, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    HAS_BIAS: tl.constexpr, TANH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < WIDTH
    mask = (row < rows)[:, None] & inside[None, :]
    index = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    value = tl.load(product + index, mask=mask, other=0.0).to(tl.float32)
    if HAS_BIAS:
        value += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    share, _ = _shares(value, TANH)
    tl.store(output + index, (value * share).to(output.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def _backward(
    gradient, product, bias, to_product, sums, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr,
    HAS_BIAS: tl.constexpr, TANH: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < WIDTH
    added = tl.zeros([COLUMNS], tl.float32)
    if HAS_BIAS:
        added += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(0, CHUNK, ROWS):
        row = chunk * CHUNK + begin + tl.arange(0, ROWS)
        mask = (row < rows)[:, None] & inside[None, :]
        index = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
        value = tl.load(product + index, mask=mask, other=0.0).to(tl.float32) + added[None, :]
        share, slope = _shares(value, TANH)
        slope = (share + value * slope) * tl.load(gradient + index, mask=mask, other=0.0)
        tl.store(to_product + index, slope.to(to_product.dtype.element_ty), mask=mask)
        total += slope
    place = chunk.to(tl.int64) * WIDTH + column
    tl.store(sums + place, tl.sum(total, 0), mask=inside)


@triton.jit
@no_type_check
def _shares(value, TANH: tl.constexpr):
    """The share of a value that a GELU lets through, and its derivative by the value."""
    if TANH:
        # tanh(a) is 1 - 2 / (1 + exp(2 a)), and half of 1 + tanh(a) a logistic function of 2 a
        square = value * value
        share = tl.sigmoid(1.5957691216057308 * value * (1.0 + 0.044715 * square))
        slope = share * (1.0 - share) * 1.5957691216057308 * (1.0 + 0.134145 * square)
    else:
        share = 0.5 + 0.5 * tl.erf(value * 0.7071067811865476)
        slope = 0.3989422804014327 * tl.exp(-0.5 * value * value)
    return share, slope


def bias_gelu(product: Tensor, bias: Tensor | None, *, tanh: bool) -> Tensor:
    """Return the GELU of a product (rows, width) that lacks its bias (width,), in its format."""
    output: Tensor = _BiasGelu.apply(product, bias, tanh)  # type: ignore[no-untyped-call]
    return output


class _BiasGelu(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, product: Tensor, bias: Tensor | None, tanh: bool) -> Tensor:  # noqa: ANN401
        product = product.contiguous()
        output = torch.empty_like(product)
        rows, width = product.shape
        with on_device(product):
            _forward[(triton.cdiv(rows, ROWS), triton.cdiv(width, COLUMNS))](
                product, bias, output, rows,
                WIDTH=width, ROWS=ROWS, COLUMNS=COLUMNS,
                HAS_BIAS=bias is not None, TANH=tanh, num_warps=WARPS,
            )  # fmt: skip
        context.save_for_backward(product, bias)
        context.tanh = tanh
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        product, bias = context.saved_tensors
        gradient = gradient.contiguous()
        to_product = torch.empty_like(product)
        rows, width = product.shape
        chunks = triton.cdiv(rows, CHUNK)
        sums = torch.empty(chunks, width, device=product.device, dtype=torch.float32)
        with on_device(product):
            _backward[(chunks, triton.cdiv(width, COLUMNS))](
                gradient, product, bias, to_product, sums, rows,
                WIDTH=width, ROWS=ROWS, COLUMNS=COLUMNS, CHUNK=CHUNK,
                HAS_BIAS=bias is not None, TANH=context.tanh, num_warps=WARPS,
            )  # fmt: skip
        return to_product, None if bias is None else sums.sum(0).to(bias.dtype), None
