"""Mixed precision and memory allocation in training."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from contextlib import AbstractContextManager

import torch

from bertsmith.network.model import Precision


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return a context of bfloat16 matrix products with float32 weights, or of float32 only."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


# from glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_large_blocks() -> bool:
    """Let the C library keep large freed blocks for the next step; return whether it will.

    Otherwise each step's activations are returned to the system and faulted in again, page by page.
    The cost is memory: freed blocks of odd sizes remain (docs/experiments/fine-tuning.md). Linux
    with glibc only.
    """
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, -1))
    return False
