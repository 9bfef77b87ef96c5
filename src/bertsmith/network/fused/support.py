"""The conditions under which the kernels for a GPU are used."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor

from bertsmith.core.log import say

Part = Literal["add_norm", "gelu", "projections", "weights", "loss"]
"""A part of the computation that is fused by itself."""
PARTS: tuple[Part, ...] = get_args(Part)
# rows and columns of a kernel's indices: below the largest int32 with some room
_MAX_ROWS, _MAX_WIDTH = 2**30, 8192

least_values = 12 * 2**20
"""Values of a block's inputs from which on its kernels are fused: with fewer, a step waits for the
processor, which starts torch's own kernels in less time."""

_left_out: set[Part] = set()


def applies(inputs: Tensor) -> bool:
    """Return whether parts of a block on `inputs` (rows, width) are fused."""
    return inputs.numel() >= least_values and any(
        uses(part, inputs) for part in PARTS if part != "loss"
    )


def uses(part: Part, inputs: Tensor) -> bool:
    """Return whether a part of the computation on `inputs` (rows, width) is fused.

    Of parts of a block `applies` decides first, by what the block is given.
    """
    return (
        inputs.is_cuda
        and part not in _left_out
        and torch.is_grad_enabled()
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") == torch.bfloat16
        and _suits(inputs)
    )


def fuses_answers(inputs: Tensor) -> bool:
    """Return whether a sum and its norm, of `inputs` (rows, width), are one kernel in answers."""
    return inputs.is_cuda and least_values <= inputs.numel() and _suits(inputs)


def _suits(inputs: Tensor) -> bool:
    """Return whether the kernels take a tensor of this size, (rows, width), on its GPU."""
    return 0 < len(inputs) < _MAX_ROWS and inputs.shape[-1] <= _MAX_WIDTH and _works(inputs.device)


@contextmanager
def without(*parts: Part) -> Iterator[None]:
    """Leave some parts to torch meanwhile, to see what they are worth."""
    added = set(parts) - _left_out
    _left_out.update(added)
    try:
        yield
    finally:
        _left_out.difference_update(added)


@functools.cache
def _works(device: torch.device) -> bool:
    """Return whether Triton is there, and compiles and runs a kernel on a device.

    It needs a C compiler when it is first used, and a chip that has bf16. Without it training is
    slower, and nothing else.
    """
    if torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        from bertsmith.network.fused.gelu import bias_gelu

        product = torch.zeros(1, 16, device=device, dtype=torch.bfloat16)
        bias_gelu(product, torch.zeros(16, device=device), tanh=False)
        torch.cuda.synchronize(device)
    except ImportError:
        return False
    except Exception as error:
        say(f"training is slower than it could be: Triton does not work here ({error!r:.200})")
        return False
    return True
