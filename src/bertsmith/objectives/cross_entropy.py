"""Cross-entropy in float32 whatever the logits are.

The native kernels take one row after the other; without them, slices of float32 logits stay in the
cache. The gradient is made with the loss, and only scaled in the backward pass.
`linear_cross_entropy` takes the last linear layer along, so that there is one array of the size of
the logits in place of five: logits become their gradient where they lie.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertsmith.core import kernels
from bertsmith.core.shapes import Table, TargetIds
from bertsmith.network.fused import support
from bertsmith.network.openmp import torch_parallel
from bertsmith.objectives.objective import Loss

_free: dict[torch.dtype, list[Tensor]] = {}


class Scratch:
    """A tensor whose memory goes to the next one that asks, once this object is gone."""

    def __init__(self, shape: tuple[int, ...], kind: torch.dtype) -> None:
        count, free = math.prod(shape), _free.setdefault(kind, [])
        self._free = free
        self._memory = free.pop() if free else torch.empty(0, dtype=kind)
        if len(self._memory) < count:
            # a little more, so that it seldom grows
            self._memory = torch.empty(count + count // 8, dtype=kind)
        self.tensor = self._memory[:count].view(shape)

    def __del__(self) -> None:
        self._free.append(self._memory)


# float32 logits at once: what the caches of a few cores hold
_LOGITS = 2**20
# of the classes: threads share the product that makes the gradient of the table evenly then
_CLASS_STEP = 64
# threads take groups of rows, each with a sum of its gradient, so few groups: sums take memory
_GROUP_ROWS, _MAX_GROUPS = 16, 64


def cross_entropy(
    logits: Tensor, labels: Tensor, smoothing: float = 0.0, weights: Tensor | None = None
) -> Loss:
    """Return cross-entropy in float32, summed: logits (targets, classes), labels (targets,).

    `weights` (classes,) multiply the losses of the targets of each class. Logits may be -inf.
    A target counts as correct when its logit is larger than every other; ties are wrong.
    """
    with torch.autocast(logits.device.type, enabled=False):
        if smoothing or weights is not None or logits.is_cuda:
            loss, correct = _by_torch(logits.float(), labels, smoothing, weights)
        else:
            loss, correct = _CrossEntropy.apply(logits, labels)  # type: ignore[no-untyped-call]
    return Loss(sum=loss, count=len(labels), correct=correct)


def linear_cross_entropy(features: Tensor, table: Table, bias: Tensor, labels: TargetIds) -> Loss:
    """Return `cross_entropy` of the logits of `features` (targets, width) under a linear layer.

    `table` is (classes, width), `bias` (classes,). Features beyond the labels are spare.
    """
    if support.uses("loss", features):
        from bertsmith.objectives.fused_loss import fused_linear_cross_entropy

        total, right = fused_linear_cross_entropy(features[: len(labels)], table, bias, labels)
        return Loss(sum=total, count=len(labels), correct=right)
    if features.is_cuda:
        return cross_entropy(F.linear(features[: len(labels)], table, bias), labels)
    kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else features.dtype
    with torch.autocast("cpu", enabled=False):
        loss, correct = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
            features.to(kind), table.to(kind), bias.float().contiguous(), labels
        )
    return Loss(sum=loss, count=len(labels), correct=correct)


def _by_torch(
    logits: Tensor, labels: Tensor, smoothing: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    loss = F.cross_entropy(logits, labels, weights, reduction="sum", label_smoothing=smoothing)
    # amax is 25 times faster than argmax on a CPU
    shown, index = logits.detach(), labels[:, None]
    label_logits = shown.gather(-1, index).squeeze(-1)
    return loss, (label_logits > shown.scatter(-1, index, -torch.inf).amax(-1)).sum()


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        gradient = torch.empty_like(logits) if context.needs_input_grad[0] else None
        loss, correct, _ = _rows_loss(logits, labels, gradient)
        context.save_for_backward(gradient)
        context.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (saved,) = context.saved_tensors
        # a number, not a tensor of the type of the logits, which would round it
        return saved * gradient.item(), None


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401
        features: Tensor,
        table: Tensor,
        bias: Tensor,
        labels: Tensor,
    ) -> tuple[Tensor, Tensor]:
        classes = len(table)
        shape = len(features), -(-classes // _CLASS_STEP) * _CLASS_STEP
        context.scratch = Scratch(shape, features.dtype)
        # the bias is added later: with it the product would take half as long again
        logits = torch.mm(features, table.T, out=context.scratch.tensor[:, :classes])
        slopes = logits[: len(labels)] if any(context.needs_input_grad[:3]) else None
        loss, correct, to_bias = _rows_loss(logits[: len(labels)], labels, slopes, bias)
        logits[len(labels) :] = 0
        context.save_for_backward(features, table, to_bias)
        context.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        features, table, to_bias = context.saved_tensors
        whole, scale = context.scratch.tensor, gradient.item()
        to_logits = whole[:, : len(table)]
        wants_features, wants_table, wants_bias, _ = context.needs_input_grad
        return (
            (to_logits @ table).mul_(scale) if wants_features else None,
            # beyond the classes are rows of whatever lay in that memory
            (whole.T @ features)[: len(table)].mul_(scale) if wants_table else None,
            to_bias * scale if wants_bias else None,
            None,
        )


def _rows_loss(
    logits: Tensor, labels: Tensor, gradient: Tensor | None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the summed loss, the number right, and the gradient of a bias that is added, if any.

    Fills `gradient`, which may be `logits`.
    """
    library, instructions = kernels.library(), kernels.instruction_set()
    if library is None or instructions is None or not _in_rows(logits, gradient, instructions):
        if bias is not None:
            logits += bias
        loss, right = _in_slices(logits, labels, gradient)
        if gradient is None or bias is None:
            return loss, right, None
        return loss, right, gradient.sum(0, dtype=torch.float32)
    losses, correct = torch.empty(len(labels)), torch.empty(len(labels), dtype=torch.bool)
    labels = labels.to(torch.int64).contiguous()
    groups = min(max(1, len(labels) // _GROUP_ROWS), _MAX_GROUPS)
    with_sums = gradient is not None and bias is not None
    sums = torch.empty(groups, logits.shape[1]) if with_sums else None
    call = kernels.LossCall(
        logits=logits.data_ptr(), bias=_address(bias), gradient=_address(gradient),
        sums=_address(sums), labels=labels.data_ptr(), losses=losses.data_ptr(),
        correct=correct.data_ptr(), rows=len(labels), classes=logits.shape[1],
        stride=logits.stride(0), groups=groups, parallel=torch_parallel(),
        instruction_set=kernels.NUMBERS[instructions], bf16=logits.dtype == torch.bfloat16,
        threads=torch.get_num_threads(),
    )  # fmt: skip
    kernels.check(library.bs_cross_entropy(call))
    return losses.sum(), correct.sum(), None if sums is None else sums.sum(0)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _in_rows(logits: Tensor, gradient: Tensor | None, instructions: str) -> bool:
    """Return whether the native kernels can take the logits, each row a stretch of memory."""
    kinds = [torch.float32, *([torch.bfloat16] if instructions in kernels.WITH_BF16 else [])]
    alike = gradient is None or gradient.stride() == logits.stride()
    on_processor = logits.device.type == "cpu" and logits.dtype in kinds
    return on_processor and alike and logits.stride(1) == 1


def _in_slices(logits: Tensor, labels: Tensor, gradient: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the summed loss and the number right; fill `gradient`, which may be `logits`."""
    rows = max(1, _LOGITS // logits.shape[1])
    wide = torch.empty(min(rows, len(logits)), logits.shape[1], dtype=torch.float32)
    losses, correct = torch.empty(len(labels)), torch.empty(len(labels), dtype=torch.bool)
    for begin in range(0, len(logits), rows):
        part = slice(begin, begin + rows)
        at = labels[part, None]
        label_logits, best_others, slice_losses = _slice(wide[: len(at)].copy_(logits[part]), at)
        losses[part], correct[part] = slice_losses, label_logits > best_others
        if gradient is not None:
            gradient[part] = wide[: len(at)]
    return losses.sum(), correct.sum()


def _slice(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Own logits, the largest of the others, and losses; `logits` become their gradient."""
    label_logits = logits.gather(-1, index)
    best_others = logits.scatter_(-1, index, -torch.inf).amax(-1, keepdim=True)
    top = torch.maximum(label_logits, best_others)
    logits.scatter_(-1, index, label_logits).sub_(top).exp_()
    total = logits.sum(-1, keepdim=True)
    logits.div_(total)
    logits.scatter_add_(-1, index, logits.new_full((), -1.0).expand(index.shape))
    return (
        label_logits.squeeze(-1),
        best_others.squeeze(-1),
        (total.log() + top - label_logits).squeeze(-1),
    )
