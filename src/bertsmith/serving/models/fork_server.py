"""The process that opens the models once, and whose forks are the workers.

Forked processes share all memory until one of them writes to it. What is large, packed matrices and
tables, is only read, so it is in memory once, however many workers there are; and a worker that
died is replaced in milliseconds.

A fork has the thread alone that forked, and locks that others held stay locked in it for ever. So
this process has one thread: nothing is computed by several while the models are opened, and what it
says goes through its connection rather than to standard error, whose reader may stall. Where
memory cannot be shared so, on a GPU and on systems other than Linux, or where some library has made
a thread all the same, workers are started afresh, and open the models themselves.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from bertsmith.core.errors import UserError
from bertsmith.core.log import say
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.log import log_directly, relay_log
from bertsmith.serving.messages import LogText, Opened, Refused, framed, read_frame
from bertsmith.serving.models.served import ServedModel, open_models
from bertsmith.serving.models.worker import (
    ignore_signals,
    log_traceback,
    lower_priority,
    run_worker,
)
from bertsmith.serving.processes import LONG_SLICE, name_process, set_slice, start_process

_WORKER = "bertsmith.serving.models.worker"


def main(connection: socket.socket) -> None:
    """Make a worker for each connection that comes through a connection, until that ends."""
    name_process("bs-models")
    ignore_signals()
    set_slice(LONG_SLICE)
    with suppress(EOFError, OSError):
        # unbuffered: what comes next are descriptors
        with connection.makefile("rb", buffering=0) as stream:
            config, threads = read_frame(stream)
        assert isinstance(config, ServeConfig)
        relay_log(lambda text: connection.sendall(framed(LogText(text))))
        try:
            _serve(connection, config, threads)
        except Exception:
            log_traceback()
    # nothing has to be torn down
    os._exit(0)


def _serve(connection: socket.socket, config: ServeConfig, threads: int) -> None:
    try:
        models = _opened(config, threads)
    except UserError as error:
        _refuse(connection, str(error))
        return
    connection.sendall(framed(Opened(())))
    # its children are not waited for: the kernel reaps them
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while (worker_connection := _next(connection)) is not None:
        try:
            if models is None:
                start_process(_WORKER, worker_connection, threads)
            elif os.fork() == 0:
                _become_worker(connection, worker_connection, models)
        except OSError as error:
            # the other end of `worker_connection` notices that there is no worker
            say(f"a worker cannot be started: {error.strerror}")
        worker_connection.close()


def _opened(config: ServeConfig, threads: int) -> Sequence[ServedModel] | None:
    """Return models that can be shared by forks, None where they cannot be."""
    if config.device.startswith("cuda") or sys.platform != "linux":
        return None
    import torch

    from bertsmith.engine.devices import device_named

    torch.set_num_threads(1)
    if device_named(config.device).type != "cpu":
        return None
    lower_priority()
    models = open_models(config, threads)
    if not alone():
        say("each worker opens the models itself: something runs a thread where they were opened")
        return None
    gc.collect()
    # else the collector would write to all objects, and so copy them, in every worker
    gc.freeze()
    return models


def alone(patience: float = 1.0) -> bool:
    """Return whether this process has one thread; those that are ending get some seconds to do so.

    A thread that was joined still exists for a moment.
    """
    deadline = time.monotonic() + patience
    while len(os.listdir("/proc/self/task")) > 1:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def _next(connection: socket.socket) -> socket.socket | None:
    """Return the next connection of a worker, None at the end."""
    data, handles = b"+", list[int]()
    # a descriptor is lost where this process may open no further one
    while data and not handles:
        data, handles, _, _ = socket.recv_fds(connection, 1, 1)
    return socket.socket(fileno=handles[0]) if data else None


def _refuse(connection: socket.socket, message: str) -> None:
    """Report the cause to all that wait for a worker, or else to the next one."""
    worker_connection = _next(connection)
    connection.setblocking(False)
    with suppress(BlockingIOError):
        while worker_connection is not None:
            with suppress(OSError):
                worker_connection.sendall(framed(Refused(message)))
            worker_connection.close()
            worker_connection = _next(connection)


def _become_worker(
    connection: socket.socket, worker_connection: socket.socket, models: Sequence[ServedModel]
) -> NoReturn:
    """Be a worker, in a process that was just forked."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.close()
        log_directly()
        run_worker(worker_connection, models)
    finally:
        os._exit(1)
