"""The device on which a kernel is started."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def on_device(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context in which kernels are started on the tensor's device."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
