"""The largest speed that matrix products reach here, against which training is held."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch

from bertsmith.training.precision import Precision

# small enough for a core's cache, large enough for an accelerator
_SIDES = (512, 1024, 2048, 4096, 8192)


def matrix_peak(precision: Precision, device: torch.device) -> float:
    """What `measure_peak` finds with the number of threads set now, measured once a process."""
    return _measured(precision, device, torch.get_num_threads())


@functools.cache
def _measured(precision: Precision, device: torch.device, threads: int) -> float:
    assert threads == torch.get_num_threads()
    return measure_peak(precision, device)


def measure_peak(precision: Precision, device: torch.device) -> float:
    """Operations a second of the fastest square matrix product, found in under half a second."""
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    best, left = 0.0, 0.3
    with torch.no_grad():
        for side in _SIDES:
            left_matrix, right_matrix = torch.rand(2, side, side, device=device).to(kind)
            product = torch.empty_like(left_matrix)
            multiply = functools.partial(torch.mm, left_matrix, right_matrix, out=product)
            began = time.perf_counter()
            seconds = _fastest(multiply, device, left / 2)
            best = max(best, 2 * side**3 / seconds)
            left -= time.perf_counter() - began
            # the next side takes eight times as long, and is called at least twice
            if 16 * seconds > left:
                break
    return best


def _fastest(call: Callable[[], object], device: torch.device, limit: float) -> float:
    """The shortest time of a call, of as many as fit into `limit` seconds and two at least."""
    times: list[float] = []
    while len(times) < 2 or sum(times) < limit:
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return min(times)
