"""Dropout whose random numbers cost little on a processor.

torch draws a number an entry, one after another: a fifth of a training step. Here a byte is drawn
an entry, four of them by one hash of a counter, by native kernels where there are any and else by
torch, with the same bits. A byte resolves the share to 1/256 (0.1 becomes 26/256 = 0.1016); values
are scaled by what is really kept, so that the expectation is exact. The key of the hash comes from
a generator: the same seed, the same entries. Entries are dropped by their bits, `value & 0` or
`value & -1`, which costs a twentieth of a product with a mask of another type.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertsmith.core import kernels
from bertsmith.network.openmp import torch_parallel

# bits of a value by the bytes it has
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_KERNEL_SIZES = (2, 4)


class Dropout(nn.Module):
    """Sets a share of the values to zero in training (Srivastava et al. 2014).

    Every dropout of a model is one of these, those of attention weights and of what a classifier
    reads among them, so that `Model.set_dropout` finds them all.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def extra_repr(self) -> str:
        """Return the part of the model's printed form."""
        return f"share={self.share:g}"

    @property
    def active_share(self) -> float:
        """The share that is dropped now: none outside training."""
        return self.share if self.training else 0.0

    def forward(self, inputs: Tensor) -> Tensor:
        """Return values of any shape, some of them zero, the others scaled up."""
        if not self.active_share:
            return inputs
        if inputs.is_cuda:
            return F.dropout(inputs, self.share)
        dropped: Tensor = _Dropped.apply(inputs, self.share)  # type: ignore[no-untyped-call]
        return dropped

    def add(self, residual: Tensor, branch: Tensor) -> Tensor:
        """Return `residual` plus `branch` with some of its values zero, both of one shape."""
        if not self.active_share or residual.is_cuda:
            whole: Tensor = residual + self(branch)
            return whole
        total: Tensor = _AddDropped.apply(  # type: ignore[no-untyped-call]
            residual, branch, self.share
        )
        return total


def dropout_scale(share: float) -> float:
    """Return the factor of the values that are kept."""
    return 256 / (256 - _dropped_bytes(share))


def dropout_mask(like: Tensor, share: float) -> Tensor:
    """Return integers as wide as `like`'s: all bits set where a value is kept, none where dropped.

    The shape is that of `like`, the share `share` rounded to 1/256, 1/256 at least.
    """
    size, count, dropped = like.element_size(), like.numel(), _dropped_bytes(share)
    library, instructions = kernels.library(), kernels.instruction_set()
    if library is not None and instructions is not None and size in _KERNEL_SIZES:
        mask = torch.empty(like.shape, dtype=_BITS[size])
        first, second = hash_keys()
        call = kernels.MaskCall(
            mask=mask.data_ptr(), count=count, parallel=torch_parallel(), first=first,
            second=second, dropped=dropped, bytes=size, threads=torch.get_num_threads(),
            instruction_set=kernels.NUMBERS[instructions],
        )  # fmt: skip
        kernels.check(library.bs_dropout_masks(call))
        return mask
    byte = random_words(-(-count // 4)).view(torch.int8)[:count].view(like.shape)
    # negative, and so all ones once shifted, below 128 - dropped: 256 - dropped of 256 bytes
    return byte.to(torch.int16).sub_(128 - dropped).bitwise_right_shift_(15).to(_BITS[size])


def apply_mask(values: Tensor, mask: Tensor) -> Tensor:
    """Return the values where `mask` is set, else zero, unscaled."""
    bits: Tensor = values.view(mask.dtype) & mask
    return bits.view(values.dtype)


def apply_mask_(values: Tensor, mask: Tensor) -> Tensor:
    """`apply_mask` in place."""
    values.view(mask.dtype).bitwise_and_(mask)
    return values


def random_words(count: int) -> Tensor:
    """Return `count` words of 32 random bits, int32, determined by the state of the generator.

    A counter times an odd number, then twice a shift and a product (the constants of
    Wellons' lowbias32), with a separate key before each round.
    """
    first, second = hash_keys()
    words = _counters(1 << max(16, math.ceil(math.log2(max(count, 1)))))[:count] * -1640531527
    words.add_(first)
    shifted = torch.empty_like(words)

    def mix(shift: int) -> Tensor:
        # torch shifts the sign in, which has to go again
        torch.bitwise_right_shift(words, shift, out=shifted).bitwise_and_(2 ** (32 - shift) - 1)
        return words.bitwise_xor_(shifted)

    mix(16).mul_(0x7FEB352D).add_(second)
    mix(15).mul_(-2073254261)
    return mix(16)


class _Drawn(threading.local):
    generator: torch.Generator | None = None


_drawn = _Drawn()


@contextmanager
def keys_from(generator: torch.Generator) -> Iterator[None]:
    """Draw the keys of this thread from a generator of their own.

    All threads share that of torch, and others may train as well.
    """
    earlier, _drawn.generator = _drawn.generator, generator
    try:
        yield
    finally:
        _drawn.generator = earlier


def hash_keys() -> tuple[int, int]:
    """Return two keys of 32 bits, from torch's generator outside `keys_from`."""
    first, second = torch.randint(-(2**31), 2**31, (2,), generator=_drawn.generator).tolist()
    return first, second


@functools.cache
def _counters(count: int) -> Tensor:
    return torch.arange(count, dtype=torch.int32)


def _dropped_bytes(share: float) -> int:
    """Return the number of byte values, of 256, that drop their entry."""
    return min(255, max(1, round(share * 256)))


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, inputs: Tensor, share: float) -> Tensor:  # noqa: ANN401
        mask = dropout_mask(inputs, share)
        context.save_for_backward(mask)
        context.scale = dropout_scale(share)
        return apply_mask(inputs.contiguous(), mask).mul_(context.scale)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (mask,) = context.saved_tensors
        return apply_mask(gradient.contiguous(), mask).mul_(context.scale), None


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, residual: Tensor, branch: Tensor, share: float) -> Tensor:  # noqa: ANN401
        mask = dropout_mask(branch, share)
        context.save_for_backward(mask)
        context.scale, context.kind = dropout_scale(share), branch.dtype
        return torch.add(residual, apply_mask(branch.contiguous(), mask), alpha=context.scale)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        (mask,) = context.saved_tensors
        to_branch = torch.mul(gradient, context.scale).to(context.kind)
        return gradient, apply_mask_(to_branch.contiguous(), mask), None
