"""The number of threads to train with: all of them, unless fewer are clearly faster.

Threads that share a product wait for each other at its end. On a machine whose cores are busy with
other programs one of them is always late, and a small model trains many times slower with all
threads than with one (docs/experiments/threads-and-busy-machines.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812

from bertsmith.core.printable import counted
from bertsmith.core.processors import threads_are_set
from bertsmith.network.torch_state import threads_of_torch
from bertsmith.training.config import Parallelism

CLEARLY_FASTER = 1.1
# of each trial, so long that threads which wait for a time slice of the system are met
_SECONDS = 0.15
_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class ThreadChoice:
    """A number of threads, and why it is not all of them ("" where it is)."""

    threads: int
    replicas: int = 1
    """Processes that share each batch (local.py), each with several threads."""
    alternative: Parallelism | None = None
    """Another parallelism, for when the machine's other programs begin or end."""
    reason: str = ""


def choose_threads(
    speed_of: Callable[[int], float], max_threads: int, unit: str = "tokens/s"
) -> ThreadChoice:
    """Choose among all threads, half of them and one, by the speed of each, in `unit`.

    Fewer than all have to be clearly faster, as they are on a busy machine.
    """
    counts = sorted({1, max(max_threads // 2, 1), max_threads})
    speeds = {threads: speed_of(threads) for threads in counts}
    best = max(counts, key=speeds.__getitem__)
    if speeds[best] <= CLEARLY_FASTER * speeds[max_threads]:
        return ThreadChoice(threads=max_threads)
    return ThreadChoice(
        threads=best,
        reason=f"{counted(best, 'thread')} of {max_threads}: {speeds[best]:,.0f} {unit} against "
        f"{speeds[max_threads]:,.0f}, as when other programs are busy",
    )


def quick_choice(hidden: int, feed_forward: int, max_threads: int) -> ThreadChoice:
    """Choose the number of threads by products as wide as a model's, within half a second.

    What the user has set is kept.
    """
    if max_threads == 1 or threads_are_set():
        return ThreadChoice(threads=max_threads)
    inputs, weights = torch.ones(_ROWS, hidden), torch.ones(feed_forward, hidden)

    def speed_of(threads: int) -> float:
        with threads_of_torch(threads):
            F.gelu(F.linear(inputs, weights))  # compiled for each number of threads
            layers, started = 0, time.perf_counter()
            while time.perf_counter() - started < _SECONDS:
                F.gelu(F.linear(inputs, weights))
                layers += 1
            return layers / (time.perf_counter() - started)

    return choose_threads(speed_of, max_threads, "products/s")
