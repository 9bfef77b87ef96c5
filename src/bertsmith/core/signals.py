"""The signals that ask the program to end: Ctrl-C, a request to terminate, a terminal hung up.

Training turns them into a request (`interruptions`): it finishes the current step, saves, and tells
how to continue."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

# a terminal that hangs up is a request to terminate; systems without terminals have no such signal
_TERMINATE = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
STOPPING: tuple[signal.Signals, ...] = (signal.SIGINT, *_TERMINATE)
"""The signals that ask for an end."""

# seconds until a signal is sent again
_PAUSE = 0.01

INTERRUPTED, TERMINATED = 130, 143
"""Exit statuses: 128 and the number of SIGINT, of SIGTERM."""


class Terminated(KeyboardInterrupt):
    """A request to terminate the program, which cleans up as after Ctrl-C."""

    def __init__(self) -> None:
        super().__init__("terminated")


class _Received:
    """True once a request to terminate has arrived, whichever handler received it."""

    terminate = False


_received = _Received()


def ending_status() -> int:
    """Return the exit status after an interruption: 130 where it was Ctrl-C alone, else 143."""
    return TERMINATED if _received.terminate else INTERRUPTED


@contextmanager
def handled(handle: Callable[[int], None], *, interrupt: bool = True) -> Iterator[None]:
    """Call `handle` with the number of each signal that asks for an end; Ctrl-C if `interrupt`.

    A signal that is ignored, as below nohup, stays so. Outside the main thread nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def receive(number: int, frame: FrameType | None) -> None:
        _received.terminate |= number != signal.SIGINT
        handle(number)

    signals = STOPPING if interrupt else _TERMINATE
    earlier = {
        number: signal.signal(number, receive)
        for number in signals
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Raise `Terminated` in the main thread on SIGTERM or SIGHUP, and lose no interruption."""

    def end(number: int) -> None:
        raise Terminated

    _received.terminate = False
    with handled(end, interrupt=False), _dropped_interruptions_repeated():
        yield


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process at once on what asks for an end, before anything has begun.

    Libraries in other languages abort or hang when an exception comes up while they are imported.
    """

    def end(number: int) -> None:
        said = "interrupted" if number == signal.SIGINT else "terminated"
        try:
            os.write(2, f"bertsmith: {said}\n".encode())
        finally:
            os._exit(ending_status())

    with handled(end):
        yield


@contextmanager
def _dropped_interruptions_repeated() -> Iterator[None]:
    """Send the signal again of an interruption that came where Python drops exceptions.

    These are destructors and callbacks of weak references; the program would go on.
    """
    earlier = sys.unraisablehook

    def repeat(dropped: Any) -> None:  # noqa: ANN401
        if not isinstance(dropped.exc_value, KeyboardInterrupt):
            earlier(dropped)
            return
        number = signal.SIGTERM if isinstance(dropped.exc_value, Terminated) else signal.SIGINT
        threading.Thread(target=send, args=(number,), daemon=True).start()

    def send(number: int) -> None:
        time.sleep(_PAUSE)
        # where it would be dropped again
        while _runs_in_main_thread(repeat.__code__):
            time.sleep(_PAUSE)
        os.kill(os.getpid(), number)

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = earlier


def _runs_in_main_thread(code: CodeType) -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Hold back what asks for an end until the block has ended, and then handle it.

    A `KeyboardInterrupt` in the middle of starting a process would leave it an orphan.
    Blocking the signals in this thread is not enough: the system then gives them to another thread,
    and Python handles them in this one. Processes that are started in the block inherit that Ctrl-C
    and a terminal that hangs up are for their parent to answer; SIGTERM reaches them.
    """
    received: list[int] = []
    try:
        with handled(received.append):
            earlier = signal.pthread_sigmask(signal.SIG_BLOCK, set(STOPPING) - {signal.SIGTERM})
            try:
                yield
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, earlier)
    finally:
        for number in received:
            signal.raise_signal(number)


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user and is saved; the message tells how to continue."""


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether the user has asked to stop.

    The first Ctrl-C (or SIGTERM, SIGHUP) is a request; a second Ctrl-C ends at once.
    """
    stop = False

    def ask(number: int) -> None:
        nonlocal stop
        if stop and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop = True

    with handled(ask):
        yield lambda: stop
