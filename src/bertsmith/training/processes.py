"""Worker processes: started clean, controlled by messages, ended with their parent.

Processes with threads are not forked: each worker is a new Python interpreter with the module path
of its parent. Ctrl-C and requests to end are handled by the parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bertsmith.core.errors import UserError, WorkerDied, out_of_memory, too_many_processes
from bertsmith.core.files import other_version
from bertsmith.core.signals import STOPPING

MESSAGES = 2
"""The format version of messages between a worker and its parent."""


class WorkerFailure(NamedTuple):
    """A failure in a worker: the parts of a `UserError`, the system's error, the traceback."""

    user_error: tuple[type[UserError], str, str | Path | None, int | None, str] | None
    system_error: OSError | None
    traceback: str

    def to_exception(self) -> Exception:
        """Return the worker's exception, to be raised in the parent."""
        where = RuntimeError(f"a process that works for this one has failed:\n{self.traceback}")
        if self.user_error is None:
            if self.system_error is not None:
                self.system_error.__cause__ = where
            return self.system_error or where
        kind, problem, place, line, remedy = self.user_error
        error = kind(problem, where=place, line=line, remedy=remedy)
        error.__cause__ = self.system_error
        return error


def describe_failure(error: Exception) -> WorkerFailure:
    """Return the message that describes the exception being handled."""
    parts = None
    error = out_of_memory(error) or too_many_processes(error) or error
    system_error = error if isinstance(error, OSError) else None
    if isinstance(error, UserError):
        parts = (type(error), error.problem, error.where, error.line, error.remedy)
        system_error = error.__cause__ if isinstance(error.__cause__, OSError) else None
    return WorkerFailure(parts, system_error, traceback.format_exc())


def begin(connection: Connection, serve: Callable[[Connection], None], messages: int) -> None:
    """Call a worker's function until the parent is gone, and end.

    The parent's messages are of another format if the installed package was replaced while it ran.
    """
    if not (version := other_version(messages, MESSAGES)):
        with contextlib.suppress(ConnectionLost):
            serve(connection)
        # a thread that waits for a reader must not delay the exit
        os._exit(0)
    refusal = WorkerDied(
        f"bertsmith was replaced by another version while it ran: this process is of {version}",
        remedy="give the same command again",
    )
    connection.send_bytes(pickle.dumps(describe_failure(refusal)))


class ConnectionLost(Exception):
    """The process at the other end has gone."""


def receive(connection: Connection) -> Any:  # noqa: ANN401
    """Return the next message from the parent; raises `ConnectionLost`."""
    try:
        return pickle.loads(connection.recv_bytes())
    except (EOFError, OSError) as error:
        raise ConnectionLost from error


class Worker(ABC):
    """A worker process; it ends when its parent does."""

    def __init__(self, serve: Callable[[Connection], None]) -> None:
        """`serve`, a module's function, is called in the worker with the connection."""
        ours, theirs = socket.socketpair()
        program = _PROGRAM.format(
            module=serve.__module__,
            function=serve.__name__,
            messages=MESSAGES,
            more=_OOM_SCORE,
        )
        # inherited by the worker: Ctrl-C is handled by the parent, which may need the worker longer
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            self._process = subprocess.Popen(
                # a file in the working folder is no module of ours, whatever its name
                [sys.executable, "-P", "-c", program, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.connection = Connection(ours.detach())
        """The connection, to wait for several workers at once."""
        # first, as none of our modules can be imported without it
        self.send(sys.path)

    @abstractmethod
    def died(self, status: int) -> WorkerDied:
        """Return the error for a worker that has died."""

    def send(self, message: object) -> None:
        """Send a message; raises `WorkerDied`."""
        self.send_pickled(pickle.dumps(message))

    def send_pickled(self, message: bytes) -> None:
        """Send a pickled message; raises `WorkerDied`."""
        try:
            self.connection.send_bytes(message)
        except OSError as error:
            raise self._died() from error

    def receive(self) -> Any:  # noqa: ANN401
        """Return the next message; raises `WorkerDied`, or the exception of the worker."""
        try:
            message = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._died() from error
        if isinstance(message, WorkerFailure):
            raise message.to_exception()
        return message

    def ask_to_stop(self) -> None:
        """Send the worker SIGTERM, which it may handle."""
        self._process.terminate()

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        self._process.kill()
        self._process.wait()

    def _died(self) -> WorkerDied:
        self._process.kill()
        return self.died(self._process.wait())


class _Pickler(pickle.Pickler):
    """Pickles tensors by value; torch's own way needs a file for each."""

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def pickled(message: object) -> bytes:
    """Return a message as bytes, with tensors by value."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(message)
    return buffer.getvalue()


# thousandths of all memory that a worker counts as taking in addition
_OOM_SCORE = 500

_PROGRAM = """
import ctypes, os, pickle, signal, sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
if sys.platform.startswith("linux"):
    # else it would notice that its parent is gone only after all imports
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[2]):
    sys.exit()
try:
    # when memory runs out, Linux ends this process rather than its parent, which reports it
    with open("/proc/self/oom_score_adj", "r+b", buffering=0) as score:
        score.write(b"%d" % min(int(score.read()) + {more}, 1000))
except (OSError, ValueError):
    pass
try:
    sys.path[:] = pickle.loads(connection.recv_bytes())
except (EOFError, OSError):
    sys.exit()
from bertsmith.training.processes import begin
from {module} import {function}
begin(connection, {function}, {messages})
"""


# from glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_large_blocks() -> None:
    """Make the C library keep large freed blocks for the next step, on Linux with glibc.

    Otherwise each step's activations are returned to the system and faulted in again, page by page.
    The cost is memory: freed blocks of odd sizes remain (docs/experiments/fine-tuning.md).
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        if mallopt(_M_MMAP_MAX, 0):
            mallopt(_M_TRIM_THRESHOLD, -1)
