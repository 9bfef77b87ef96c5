"""torch's state of the process, which programs around the Python API may have changed.

Their default type or device, autocast, inference mode and disabled gradients are for their own
code: ours creates float32 on the processor where it names nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_PROCESSOR = torch.device("cpu")


class _DefaultType:
    """The default type of new tensors, which all threads share, set to float32 while it is used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._earlier = torch.float32

    def acquire(self) -> None:
        """Set it to float32."""
        with self._lock:
            if not self._users:
                self._earlier = torch.get_default_dtype()
                torch.set_default_dtype(torch.float32)
            self._users += 1

    def release(self) -> None:
        """Set it back when nobody else uses it."""
        with self._lock:
            self._users -= 1
            if not self._users:
                torch.set_default_dtype(self._earlier)

    def forget_users(self) -> None:
        """Set it back in a process that was forked, where the other threads are not."""
        self._lock = threading.Lock()
        if self._users:
            self._users = 0
            torch.set_default_dtype(self._earlier)


_default_type = _DefaultType()


def forget_other_threads() -> None:
    """Restore the caller's state in a process that was forked while threads computed."""
    _default_type.forget_users()


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Restore the caller's random numbers of torch afterwards.

    Training seeds those of a GPU at each step; on the processor it has generators of its own, and
    only what torch itself draws counts. Those of a GPU that is not in use yet have no state: they
    begin at the caller's seed.
    """
    used = torch.cuda.is_initialized()
    devices = range(torch.cuda.device_count() if used else 0)
    try:
        with torch.random.fork_rng(devices=devices, device_type="cuda"):
            yield
    finally:
        if torch.cuda.is_initialized() and not used:
            torch.cuda.manual_seed_all(torch.initial_seed())


@contextmanager
def usual_torch_state() -> Iterator[None]:
    """Compute with the state that torch has when it is imported, and restore the caller's."""
    _default_type.acquire()
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
        ):
            # a mode of a device costs time at each operation
            if torch.get_default_device() == _PROCESSOR:
                yield
            else:
                with _PROCESSOR:
                    yield
    finally:
        _default_type.release()
