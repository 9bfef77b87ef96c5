"""The threads of torch, for native kernels that work between its operations."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch


@cache
def torch_parallel() -> int | None:
    """Return the address of GOMP_parallel in torch's OpenMP; None if it has another, or none."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    with suppress(OSError, AttributeError):
        loaded = ctypes.CDLL(str(library), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value
    return None
