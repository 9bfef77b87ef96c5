"""Worker processes as the process that speaks HTTP sees them: started, heard, replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from contextlib import suppress
from typing import Protocol

from bertsmith.core.log import say
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.log import write_log
from bertsmith.serving.messages import (
    Batch,
    Cancel,
    Done,
    Lane,
    LogText,
    Opened,
    Refused,
    Started,
    framed,
    read_message,
)
from bertsmith.serving.processes import (
    adopt_orphans,
    has_default_policy,
    start_process,
    use_default_policy,
)

_FORK_SERVER = "bertsmith.serving.models.fork_server"
MAX_PAUSE = 5.0
"""Seconds before another attempt to start what has failed often."""


def pause_after(failures: int) -> float:
    """Return the seconds before another attempt, twice as many after each failure."""
    # a server may fail for hours, and a power of thousands exceeds all floats
    return min(2.0 ** min(failures, 10), MAX_PAUSE)


class Listener(Protocol):
    """The receiver of a worker's messages."""

    def on_message(self, worker: Link, message: Opened | Refused | Done) -> None:
        """A worker has sent a message."""
        ...

    def on_exit(self, worker: Link) -> None:
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


class ForkServer:
    """The process that opens the models and makes workers (`models.fork_server`), as seen here.

    Where it dies, its workers go on, and another one is started. What it says is written here.
    """

    def __init__(self, config: ServeConfig, threads: int) -> None:
        self.settings = (config, threads)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._once = self._stopped = False
        self._default_policy = has_default_policy()
        adopt_orphans()

    def make_worker(self, connection: socket.socket) -> None:
        """Let a worker serve the process at the other end of a connection; raises `OSError`."""
        if self._process is None:
            self._start()
        try:
            self._pass(connection)
        except (BrokenPipeError, ConnectionResetError):
            # it has just died
            self._start()
            self._pass(connection)

    def _pass(self, connection: socket.socket) -> None:
        assert self._connection is not None
        socket.send_fds(self._connection, [b"+"], [connection.fileno()])

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # it has no thread but one, which may fork
                process = start_process(_FORK_SERVER, theirs, 1)
            except OSError:
                ours.close()
                raise
        if self._default_policy:
            # an overload changes that of this process, not of the workers to come
            use_default_policy(process.pid)
        ours.sendall(framed(self.settings))
        self._process, self._connection = process, ours
        task = asyncio.get_running_loop().create_task(self._listen(process, ours))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        """Write what a process says until it ends, and start another one if one ever came so far.

        Before that the gateway decides: the models may be at fault.
        """
        reader, writer = await asyncio.open_connection(sock=connection.dup())
        opened = False
        try:
            while True:
                match await read_message(reader):
                    case LogText(text):
                        write_log(text)
                    case Opened():
                        opened = self._once = True
                        self._failures = 0
        except (EOFError, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            latest = process is self._process
            if latest:
                self._process = None
            writer.close()
            connection.close()
            process.kill()
            await asyncio.to_thread(process.wait)
        if latest and self._once and not self._stopped:
            say("the process that holds the models has died and is replaced")
            pause = 0.0 if opened else pause_after(self._failures)
            self._failures += not opened
            asyncio.get_running_loop().call_later(pause, self._restart)

    def _restart(self) -> None:
        if self._stopped or self._process is not None:
            return
        try:
            self._start()
        except OSError as error:
            # tried again for the next worker
            say(f"the process that holds the models cannot be started: {error.strerror}")

    async def stop(self) -> None:
        """End the process; its workers are ended by others."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class WorkerProcess:
    """A worker in a separate process."""

    def __init__(self, server: ForkServer, listener: Listener, lane: Lane) -> None:
        """Start the process; `listen` has to be run beside."""
        self._listener, self._first = listener, framed((*server.settings, lane))
        self._ours, theirs = socket.socketpair()
        self._writer: asyncio.StreamWriter | None = None
        self._pid: int | None = None
        with theirs:
            try:
                server.make_worker(theirs)
            except OSError:
                self._ours.close()
                raise

    async def listen(self) -> None:
        """Hand on what the worker sends until it ends."""
        reader, self._writer = await asyncio.open_connection(sock=self._ours)
        try:
            self._writer.write(self._first)
            while True:
                message = await read_message(reader)
                if isinstance(message, Started):
                    self._pid = message.pid
                else:
                    self._listener.on_message(self, message)
        except (EOFError, OSError, asyncio.IncompleteReadError):
            pass
        except Exception as error:
            # its message may quote a text
            say(f"a worker sent what cannot be understood: {type(error).__name__}")
            self.kill()
        finally:
            pid, self._pid = self._pid, None
            self._writer.close()
            await asyncio.to_thread(_reap, pid)
            self._listener.on_exit(self)

    def send(self, message: Batch | Cancel) -> None:
        """Send a message; to a worker that has ended nothing is sent, and `on_exit` follows."""
        assert self._writer is not None
        # uvloop, unlike asyncio, raises otherwise
        if not self._writer.is_closing():
            self._writer.write(framed(message))

    def kill(self) -> None:
        """End the process."""
        # as long as its connection is open it lives, and its process id is not reused
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        elif self._ours.fileno() >= 0:
            # it notices
            with suppress(OSError):
                self._ours.shutdown(socket.SHUT_RDWR)


def _reap(pid: int | None) -> None:
    """Forget a process that has ended, where it is a child of this one: its parent has died."""
    if pid is not None:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
