"""A pool of processes that Ctrl-C ends quickly, whenever it comes."""

from __future__ import annotations

import errno
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from bertsmith.core.log import say
from bertsmith.core.signals import deferred_signals

R = TypeVar("R")

_OPEN_FILES = (errno.EMFILE, errno.ENFILE)


def runs_script() -> bool:
    """Return whether this interpreter was started with a file of Python, as ``python mine.py``."""
    main = sys.modules["__main__"]
    return main.__spec__ is None and str(getattr(main, "__file__", "")).endswith(".py")


class ProcessPool:
    """Processes that call functions; they are started when there is work for them."""

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor

    def submit(self, function: Callable[..., R], *arguments: Any) -> Future[R]:  # noqa: ANN401
        """Have a module's function called; the result or exception is in the future.

        Raises `BrokenProcessPool` when a process has been killed.
        """
        # a process may be started here; the executor itself ends them by SIGTERM
        with deferred_signals(), _no_file_of_standard_input():
            return self._executor.submit(function, *arguments)


@contextmanager
def _no_file_of_standard_input() -> Iterator[None]:
    """Hide the file ``<stdin>`` of a program from standard input: new processes would look for it.

    They import the main module, where that has a file.
    """
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) != "<stdin>":
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = "<stdin>"


@contextmanager
def process_pool(
    processes: int, initializer: Callable[..., object] | None = None, *arguments: object
) -> Iterator[ProcessPool | None]:
    """Yield a pool of new interpreters; what has not been begun at the end of the block is dropped.

    Each calls `initializer`, a module's function, with `arguments` first, and ends with its parent.
    None, after a line that says so, where the system has no semaphores, which a pool needs; raises
    `OSError` where no further file may be open.
    """
    try:
        # Python's process that tracks semaphores is started here, and inherits that a terminal that
        # hangs up is not for it: one that dies before this one makes noise at the end
        with deferred_signals():
            executor = ProcessPoolExecutor(
                processes,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start,
                initargs=(initializer, arguments),
            )
    except OSError as error:
        if error.errno in _OPEN_FILES:
            raise
        executor, refusal = None, error.strerror
    if executor is None:
        # on Linux they are files there, and some containers have no such folder
        say(f"one process does it all: several need semaphores (in /dev/shm on Linux): {refusal}")
        yield None
        return
    try:
        yield ProcessPool(executor)
    finally:
        # a thread whose end is waited for counts as ended in Python once that is interrupted, and
        # the program would wait at its end for processes that nobody has told to end
        with deferred_signals():
            executor.shutdown(wait=True, cancel_futures=True)


def _start(initializer: Callable[..., object] | None, arguments: tuple[object, ...]) -> None:
    if initializer is not None:
        initializer(*arguments)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Else the processes would wait forever for work from a parent that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
