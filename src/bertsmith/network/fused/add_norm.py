"""A product's bias, dropout, the residual sum and the layer norm after it, as one kernel.

With a product's output x, its bias b, a residual r, and what dropout keeps, scaled, of a value:

    s = r + kept(x + b)        y = (s - mean) / deviation * gain + shift

y is returned twice: in float32 for the next residual sum, and in the format of x, which the next
product reads. Both have gradients of their own, which the backward pass adds up as it reads them.
It keeps the normed values in the format of x, unless there are no gradients, and draws again what
was dropped.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from bertsmith.network.dropout import hash_keys
from bertsmith.network.fused.device import on_device

# values of a tile, but a row at least, and of a warp: then none of a program's values are spilled
TILE, WARP = 1024, 256
# warps of the backward pass that a multiprocessor has registers for: all its programs run at once
RESIDENT = 24


@triton.jit
@no_type_check
def _kept(index, first, second, threshold):
    """Return whether values are kept: whether their 32 random bits reach the threshold.

    A hash of the value's number (Wellons' lowbias32), with a key before each round, as
    `network.dropout.random_words` draws them on a processor.
    """
    word = index.to(tl.uint32) * 0x9E3779B9 + first.to(tl.uint32)
    word = (word ^ (word >> 16)) * 0x7FEB352D + second.to(tl.uint32)
    word = (word ^ (word >> 15)) * 0x846CA68B
    word = word ^ (word >> 16)
    return word >= threshold.to(tl.uint32)


@triton.jit(do_not_specialize=["rows", "first", "second", "threshold"])
@no_type_check
def _forward(
    product, bias, residual, gain, shift, output, operand, normed, inverse,
    rows, first, second, threshold, scale, epsilon,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_SHIFT: tl.constexpr, DROPS: tl.constexpr, TWICE: tl.constexpr,
    KEEPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    mask = (row < rows)[:, None] & inside[None, :]
    index = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    added = tl.load(product + index, mask=mask, other=0.0).to(tl.float32)
    if HAS_BIAS:
        added += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if DROPS:
        added = tl.where(_kept(index, first, second, threshold), added * scale, 0.0)
    total = added + tl.load(residual + index, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(total, 1) / WIDTH
    centred = tl.where(mask, total - mean[:, None], 0.0)
    deviation = tl.rsqrt(tl.sum(centred * centred, 1) / WIDTH + epsilon)
    unit = centred * deviation[:, None]
    values = unit * tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if HAS_SHIFT:
        values += tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(output + index, values.to(output.dtype.element_ty), mask=mask)
    if TWICE:
        tl.store(operand + index, values.to(operand.dtype.element_ty), mask=mask)
    if KEEPS:
        tl.store(normed + index, unit.to(normed.dtype.element_ty), mask=mask)
        tl.store(inverse + row, deviation, mask=row < rows)


@triton.jit(do_not_specialize=["rows", "first", "second", "threshold"])
@no_type_check
def _backward(
    from_output, from_operand, normed, inverse, gain, to_product, to_residual, sums,
    rows, first, second, threshold, scale,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    HAS_OUTPUT: tl.constexpr, HAS_OPERAND: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(0), tl.num_programs(0)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    gains = tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    gain_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    shift_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    bias_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    for begin in range(program * ROWS, rows, programs * ROWS):
        row = begin + tl.arange(0, ROWS)
        mask = (row < rows)[:, None] & inside[None, :]
        index = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
        gradient = tl.zeros([ROWS, BLOCK], tl.float32)
        if HAS_OUTPUT:
            gradient += tl.load(from_output + index, mask=mask, other=0.0).to(tl.float32)
        if HAS_OPERAND:
            gradient += tl.load(from_operand + index, mask=mask, other=0.0).to(tl.float32)
        unit = tl.load(normed + index, mask=mask, other=0.0).to(tl.float32)
        deviation = tl.load(inverse + row, mask=row < rows, other=0.0)
        gain_sum += gradient * unit
        shift_sum += gradient
        scaled = gradient * gains
        along = tl.sum(scaled * unit, 1) / WIDTH
        mean = tl.sum(scaled, 1) / WIDTH
        to_sum = (scaled - mean[:, None] - unit * along[:, None]) * deviation[:, None]
        tl.store(to_residual + index, to_sum.to(to_residual.dtype.element_ty), mask=mask)
        if DROPS:
            to_sum = tl.where(_kept(index, first, second, threshold), to_sum * scale, 0.0)
        # columns beyond the width are not stored
        bias_sum += to_sum
        tl.store(to_product + index, to_sum.to(to_product.dtype.element_ty), mask=mask)
    place = program.to(tl.int64) * WIDTH + column
    stride = programs.to(tl.int64) * WIDTH
    tl.store(sums + place, tl.sum(gain_sum, 0), mask=inside)
    tl.store(sums + stride + place, tl.sum(shift_sum, 0), mask=inside)
    tl.store(sums + 2 * stride + place, tl.sum(bias_sum, 0), mask=inside)


def add_norm(
    product: Tensor, bias: Tensor | None, residual: Tensor, norm: nn.LayerNorm, share: float
) -> tuple[Tensor, Tensor]:
    """Return the norm of a residual sum, (rows, width), in float32 and in the product's format.

    `product` (rows, width) lacks its `bias` (width,); a share of it, biased, is dropped.
    """
    both: tuple[Tensor, Tensor] = _AddNorm.apply(  # type: ignore[no-untyped-call]
        product, bias, residual, norm.weight, norm.bias, (norm.eps, share, torch.is_grad_enabled())
    )
    return both


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401
        product: Tensor,
        bias: Tensor | None,
        residual: Tensor,
        gain: Tensor,
        shift: Tensor | None,
        settings: tuple[float, float, bool],
    ) -> tuple[Tensor, Tensor]:
        epsilon, share, keeps = settings
        product, residual = product.contiguous(), residual.contiguous()
        rows, width = product.shape
        output = torch.empty_like(product, dtype=torch.float32)
        twice = product.dtype != torch.float32
        operand = torch.empty_like(product) if twice else output.detach()
        normed = torch.empty_like(product) if keeps else None
        inverse = torch.empty(rows, device=product.device) if keeps else None
        drawn = _drawn(share)
        block, tile_rows, warps = _tile(width)
        with on_device(product):
            _forward[(triton.cdiv(rows, tile_rows),)](
                product, bias, residual, gain, shift, output, operand, normed, inverse,
                rows, *drawn, epsilon,
                WIDTH=width, BLOCK=block, ROWS=tile_rows,
                HAS_BIAS=bias is not None, HAS_SHIFT=shift is not None,
                DROPS=share > 0, TWICE=twice, KEEPS=keeps, num_warps=warps,
            )  # fmt: skip
        context.save_for_backward(normed, inverse, gain)
        context.drawn, context.share, context.kind = drawn, share, residual.dtype
        context.of_bias = None if bias is None else bias.dtype
        context.has_shift = shift is not None
        context.set_materialize_grads(False)
        return output, operand

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        context: Any,  # noqa: ANN401
        from_output: Tensor | None,
        from_operand: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        normed, inverse, gain = context.saved_tensors
        if from_output is None and from_operand is None:
            return (None,) * 6
        from_output = None if from_output is None else from_output.contiguous()
        from_operand = None if from_operand is None else from_operand.contiguous()
        rows, width = normed.shape
        block, tile_rows, warps = _tile(width)
        programs = max(1, RESIDENT // warps) * _multiprocessors(normed.device)
        programs = min(triton.cdiv(rows, tile_rows), programs)
        to_product = torch.empty_like(normed)
        to_residual = torch.empty_like(normed, dtype=context.kind)
        sums = torch.empty(3, programs, width, device=normed.device, dtype=torch.float32)
        with on_device(normed):
            _backward[(programs,)](
                from_output, from_operand, normed, inverse, gain, to_product, to_residual, sums,
                rows, *context.drawn,
                WIDTH=width, BLOCK=block, ROWS=tile_rows,
                HAS_OUTPUT=from_output is not None, HAS_OPERAND=from_operand is not None,
                DROPS=context.share > 0, num_warps=warps,
            )  # fmt: skip
        to_gain, to_shift, to_bias = sums.sum(1).unbind()
        return (
            to_product,
            None if context.of_bias is None else to_bias.to(context.of_bias),
            to_residual,
            to_gain.to(gain.dtype),
            to_shift.to(gain.dtype) if context.has_shift else None,
            None,
        )


def _tile(width: int) -> tuple[int, int, int]:
    """Return the columns and rows of a tile, and the warps that share it."""
    block = triton.next_power_of_2(width)
    return block, max(1, TILE // block), min(16, max(TILE, block) // WARP)


def _drawn(share: float) -> tuple[int, int, int, float]:
    """Return two keys, the threshold below which bits drop a value, and the scale of what is kept.

    The keys come from a generator of the processor, which a run seeds by the step. All are the bits
    of an int32.
    """
    if not share:
        return 0, 0, 0, 1.0
    first, second = hash_keys()
    limit = min(2**32 - 1, max(1, round(share * 2**32)))
    return first, second, limit - 2**32 if limit >= 2**31 else limit, 2**32 / (2**32 - limit)


def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
