"""The bf16 copies of a block's weights, made at once; their gradients go back at once, too.

Autocast copies every weight in a kernel of its own, and every gradient in another: a fifth of the
kernels of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def half_copies(groups: Sequence[Sequence[Tensor]], kind: torch.dtype) -> list[Tensor]:
    """Return for each group its tensors, end to end, in the format `kind`."""
    sizes = tuple(len(group) for group in groups)
    tensors = [tensor for group in groups for tensor in group]
    copies: tuple[Tensor, ...] = _HalfCopies.apply(kind, sizes, *tensors)  # type: ignore[no-untyped-call]
    return list(copies)


class _HalfCopies(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401
        kind: torch.dtype,
        sizes: tuple[int, ...],
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        context.sizes, context.shapes = sizes, [tensor.shape for tensor in tensors]
        context.kind = tensors[0].dtype
        context.set_materialize_grads(False)
        copies, parts, left = [], list[Tensor](), list(tensors)
        for size in sizes:
            group, left = left[:size], left[size:]
            rows = [len(tensor) for tensor in group]
            copies.append(group[0].new_empty(sum(rows), *group[0].shape[1:], dtype=kind))
            parts += copies[-1].split(rows)
        torch._foreach_copy_(parts, list(tensors))
        return tuple(copies)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        results, parts, targets = list[Tensor | None](), list[Tensor](), list[Tensor]()
        shapes = iter(context.shapes)
        for size, gradient in zip(context.sizes, gradients, strict=True):
            group = [next(shapes) for _ in range(size)]
            if gradient is None:
                results += [None] * size
                continue
            wide = [gradient.new_empty(shape, dtype=context.kind) for shape in group]
            parts += gradient.split([shape[0] for shape in group])
            targets += wide
            results += wide
        if targets:
            torch._foreach_copy_(targets, parts)
        return None, None, *results
