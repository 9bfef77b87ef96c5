"""Worker processes as the process that speaks HTTP sees them: started, heard, replaced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Protocol

from bertsmith.core.log import say
from bertsmith.core.signals import STOPPING
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.messages import (
    Batch,
    Cancel,
    Done,
    Opened,
    Refused,
    framed,
    read_message,
)

_PROGRAM = """
import ctypes, json, os, signal, socket, sys
if sys.platform.startswith("linux"):
    # else it would notice that its parent is gone only after all imports
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[2]):
    sys.exit()
sys.path[:] = json.loads(sys.argv[3])
from bertsmith.serving.models.worker import main
main(socket.socket(fileno=int(sys.argv[1])))
"""


class Listener(Protocol):
    """The receiver of a worker's messages."""

    def heard(self, worker: Link, message: Opened | Refused | Done) -> None:
        """A worker has sent a message."""
        ...

    def lost(self, worker: Link) -> None:
        """A worker has ended; nothing comes from it any more."""
        ...


class Link(Protocol):
    """A worker, wherever it runs."""

    def send(self, message: Batch | Cancel) -> None:
        """Send it a message."""
        ...

    def kill(self) -> None:
        """End it."""
        ...


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, config: ServeConfig, threads: int, listener: Listener) -> None:
        """Start the process; `listen` has to be run beside."""
        self._listener = listener
        ours, theirs = socket.socketpair()
        self._ours = ours
        environment = {"OMP_NUM_THREADS": str(threads)} | dict(os.environ)
        # inherited by the worker: Ctrl-C is handled by the parent, which lets it finish
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _PROGRAM),
                    *(str(theirs.fileno()), str(os.getpid()), json.dumps(sys.path)),
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._writer: asyncio.StreamWriter | None = None
        self._first = framed((config, threads))

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    async def listen(self) -> None:
        """Hand on what the worker sends until it ends."""
        reader, self._writer = await asyncio.open_connection(sock=self._ours)
        try:
            self._writer.write(self._first)
            while True:
                self._listener.heard(self, await read_message(reader))
        except (EOFError, OSError, asyncio.IncompleteReadError):
            pass
        except Exception as error:
            # its message may quote a text
            say(f"a worker sent what cannot be understood: {type(error).__name__}")
        finally:
            self._writer.close()
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
            self._listener.lost(self)

    def send(self, message: Batch | Cancel) -> None:
        """Send a message."""
        assert self._writer is not None
        self._writer.write(framed(message))

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
