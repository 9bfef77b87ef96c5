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


class _ThreadNumber:
    """torch's number of threads, which each thread of the program has, and one for new ones.

    Setting that of a thread sets the one for new ones too. Of several threads that compute with
    numbers of their own, the last one sets it back; one that was new when it began gets the usual
    number, and not that of another one's work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_use: list[int] = []
        self._usual = 0
        self._latest: int | None = None
        self._thread = threading.local()

    def begin(self, count: int | None) -> tuple[int, int]:
        """Set the number of this thread unless it is None; return the earlier one, and this."""
        with self._lock:
            earlier, depth = torch.get_num_threads(), getattr(self._thread, "depth", 0)
            if not self._in_use:
                self._usual = earlier
            elif not depth and earlier in self._in_use:
                earlier = self._usual
            number = count or earlier
            self._set(number)
            self._in_use.append(number)
            self._thread.depth = depth + 1
        return earlier, number

    def end(self, earlier: int, number: int) -> None:
        """Set the number back."""
        with self._lock:
            self._thread.depth -= 1
            # in a process that was forked meanwhile, nothing is in use
            if number in self._in_use:
                self._in_use.remove(number)
            self._set(earlier)
            if not self._in_use and self._latest is not None:
                if self._latest != self._usual:
                    self._set_for_new_ones(self._usual, earlier)
                self._latest = None

    def _set(self, number: int) -> None:
        if torch.get_num_threads() != number:
            torch.set_num_threads(number)
            self._latest = number

    def _set_for_new_ones(self, number: int, own: int) -> None:
        if number == own:
            torch.set_num_threads(number)
        else:
            new = threading.Thread(target=torch.set_num_threads, args=(number,))
            new.start()
            new.join()

    def forget_users(self) -> None:
        """Go on in a process that was forked, where the other threads are not."""
        self._lock = threading.Lock()
        self._in_use.clear()
        self._latest = None


_default_type = _DefaultType()
_thread_number = _ThreadNumber()


def forget_other_threads() -> None:
    """Restore the caller's state in a process that was forked while threads computed."""
    _default_type.forget_users()
    _thread_number.forget_users()


@contextmanager
def threads_of_torch(count: int | None) -> Iterator[None]:
    """Set torch's number of threads meanwhile; None leaves it as it is."""
    numbers = _thread_number.begin(count)
    try:
        yield
    finally:
        _thread_number.end(*numbers)


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
