"""Processes that work for this one: begun clean, spoken with by messages, ended with it.

Nothing is forked that has threads: each is a Python of its own, told where to find the modules of
this one. Ctrl-C and requests to end are for this process to answer.
"""

from __future__ import annotations

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

from bertsmith.core.errors import UserError, WorkerDied, out_of_memory
from bertsmith.core.signals import STOPPING


class Failed(NamedTuple):
    """Something went wrong: what a `UserError` says, what the system said, where a bug is."""

    user_error: tuple[type[UserError], str, str | Path | None, int | None, str] | None
    system_error: OSError | None
    traceback: str

    def again(self) -> Exception:
        """What was raised over there, to be raised here."""
        where = RuntimeError(f"a process that works for this one has failed:\n{self.traceback}")
        if self.user_error is None:
            if self.system_error is not None:
                self.system_error.__cause__ = where
            return self.system_error or where
        kind, what, place, line, remedy = self.user_error
        error = kind(what, where=place, line=line, remedy=remedy)
        error.__cause__ = self.system_error
        return error


def failure(error: Exception) -> Failed:
    """What to tell of an exception that is being handled."""
    said = None
    error = out_of_memory(error) or error
    system_error = error if isinstance(error, OSError) else None
    if isinstance(error, UserError):
        said = (type(error), error.what, error.where, error.line, error.remedy)
        system_error = error.__cause__ if isinstance(error.__cause__, OSError) else None
    return Failed(said, system_error, traceback.format_exc())


class Gone(Exception):
    """Nobody is at the other end any more."""


def receive(connection: Connection) -> Any:  # noqa: ANN401
    """The next message from the process that this one works for; raises `Gone`."""
    try:
        return pickle.loads(connection.recv_bytes())
    except (EOFError, OSError) as error:
        raise Gone from error


class Worker(ABC):
    """A process that works for this one; it ends when this one does."""

    def __init__(self, serve: Callable[[Connection], None]) -> None:
        """`serve` is called over there, with the connection; it must be a module's own."""
        ours, theirs = socket.socketpair()
        program = _PROGRAM.format(module=serve.__module__, function=serve.__name__)
        # the process inherits this: Ctrl-C is for its parent to answer, which may want more of it
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.connection = Connection(ours.detach())
        """To wait for several at once."""
        # first, as nothing of ours can be found without it
        self.tell(sys.path)

    @abstractmethod
    def died(self, status: int) -> WorkerDied:
        """What there is to say of one that has died."""

    def tell(self, message: object) -> None:
        """Send a message; raises `WorkerDied`."""
        self.tell_pickled(pickle.dumps(message))

    def tell_pickled(self, message: bytes) -> None:
        """Send a message that is pickled already; raises `WorkerDied`."""
        try:
            self.connection.send_bytes(message)
        except OSError as error:
            raise self._died() from error

    def hear(self) -> Any:  # noqa: ANN401
        """The next message; raises `WorkerDied`, or what went wrong over there."""
        try:
            told = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._died() from error
        if isinstance(told, Failed):
            raise told.again()
        return told

    def ask_to_stop(self) -> None:
        """Send it the signal to end; what it makes of that is its own."""
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
    """Sends tensors as their bytes; torch's own way needs a file for each."""

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def pickled(message: object) -> bytes:
    """A message as bytes, tensors in it as theirs."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(message)
    return buffer.getvalue()


_PROGRAM = """
import ctypes, os, pickle, signal, sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
if sys.platform.startswith("linux"):
    # it would notice by itself that its parent is gone, but only when all is imported
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[2]):
    sys.exit()
try:
    sys.path[:] = pickle.loads(connection.recv_bytes())
except (EOFError, OSError):
    sys.exit()
from {module} import {function}
{function}(connection)
"""
