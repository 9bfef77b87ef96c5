"""The server from start to end: listen, open the models, answer, drain after a signal."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.core.errors import ConfigError, MissingExtra, ModelFolderError
from bertsmith.core.log import say
from bertsmith.core.output import print_line
from bertsmith.core.printable import counted
from bertsmith.core.processors import usable_processors
from bertsmith.core.signals import STOPPING
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.log import buffered_log
from bertsmith.serving.messages import Lane, ModelFacts
from bertsmith.serving.processes import SHORT_SLICE, batch_wakeups, has_default_policy, set_slice

if TYPE_CHECKING:
    from bertsmith.serving.dispatch.gateway import Gateway
    from bertsmith.serving.http.limits import Keys, Limits

_PACKAGES = ("starlette", "granian", "orjson", "pydantic", "prometheus_client", "uvloop")
# without a request, after which connections are closed; what is on its way then would be lost
_QUIET = 0.3
_MAX_PARTING_SECONDS = 5.0
# since the signal, for which connections that say nothing are kept: their clients may be about to
_MAX_SILENT_SECONDS = 2.0
_TICK = 0.02
# SO_ATTACH_FILTER of Linux
_ATTACH_FILTER = 26
# of refusals, by which it is decided whether the server is overloaded
_OVERLOAD_SECONDS, _REFUSALS_A_SECOND = 0.5, 100
# a request is refused after two or three of them
_REST = 0.006
# more than before, after which Python looks for cycles among the new ones
_CONTAINERS = 50_000
# beside those of connections and workers: about 15, and some to start other workers with
_OTHER_FILES = 64
_LISTENING = {
    errno.EADDRINUSE: "choose another --port, or stop the program that uses it",
    errno.EACCES: "choose another --port, of 1024 or more",
}
"""Remedies where the port is the problem, and not the host."""


def serve(config: ServeConfig) -> None:
    """Serve models until a signal ends the server; raises `UserError` where it cannot start."""
    _check_packages()
    import uvloop

    from bertsmith.serving.http.limits import Keys

    keys = Keys.load(config.api_keys)
    if config.check:
        check(config)
        return
    config = with_room(config)
    with listening(config) as listener:
        # before any thread is started, which has the same
        set_slice(SHORT_SLICE)
        with buffered_log(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, keys, listener))
    # granian's threads may call Python for a moment yet, and abort where it is being torn down
    os._exit(0)


def check(config: ServeConfig) -> None:
    """Open the models, let each answer an example, and print what they are."""
    from bertsmith.serving.messages import Batch
    from bertsmith.serving.models.served import open_models, sample
    from bertsmith.serving.models.worker import Computing

    _, threads = division(config)
    models = open_models(config, threads)
    computing = Computing(models, _unsent)
    for number, model in enumerate(models):
        facts = model.facts
        batch = Batch(number, facts.kind, ((0, sample(facts), float("inf")),))
        (outcome,) = computing.answer(batch)
        if outcome.problem is not None:
            raise ModelFolderError(f"does not answer: {outcome.message}", where=facts.name)
    for line in table([model.facts for model in models], address(config, config.port)):
        print_line(line)


def _unsent(message: object) -> None:
    raise AssertionError("nobody listens")


def _check_packages() -> None:
    """Raise `MissingExtra` for a package that is not installed."""
    from importlib.util import find_spec

    for package in _PACKAGES:
        if find_spec(package) is None:
            raise MissingExtra(package.replace("_", "-"), "serve", "bertsmith serve")


def division(config: ServeConfig) -> tuple[int, int]:
    """Return the numbers of workers of each lane, and of threads of each."""
    cores = usable_processors()
    set_by_user = os.environ.get("OMP_NUM_THREADS", "")
    if set_by_user.isdecimal() and int(set_by_user) > 0:
        cores = min(cores, int(set_by_user))
    workers = config.workers or (1 if cores == 1 or _on_gpu(config) else 2)
    return workers, config.engine.threads or max(cores // workers, 1)


def lanes(config: ServeConfig) -> tuple[Lane, ...]:
    """Return the lanes that workers have: two where a further worker takes little memory."""
    shared = sys.platform == "linux" and not _on_gpu(config)
    return ("small", "large") if shared else ("any",)


def _on_gpu(config: ServeConfig) -> bool:
    auto = config.device == "auto" and Path("/dev/nvidiactl").exists()
    return auto or config.device.startswith("cuda")


def address(config: ServeConfig, port: int) -> str:
    """Return the address of the server."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{port}"


def table(models: Sequence[ModelFacts], url: str) -> list[str]:
    """Return lines: name, task, precision, limit and URL of each model."""
    rows = [("name", "task", "precision", "tokens", "URL")]
    for facts in models:
        path = "/v1/embeddings" if facts.kind == "vectors" else "/answer"
        limit = f"{facts.max_input_length:,}"
        rows.append((facts.name, ", ".join(facts.can), facts.precision, limit, url + path))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def with_room(config: ServeConfig) -> ServeConfig:
    """Raise the limit of open files to what the connections need, as far as the system allows.

    Returns the config with as many connections as there is room for, and says so where that is
    fewer: a server that may open no file spins, and accepts nobody. Raises `ConfigError` where
    there is no room for any.
    """
    workers = division(config)[0] * len(lanes(config))
    connections, other_files = config.limits.connections, _OTHER_FILES + workers
    allowed = _raise_open_files(connections + other_files)
    available = allowed - other_files
    if available >= connections:
        return config
    if available < 1:
        needed = f"{other_files + 1} or more"
        problem = f"the system allows {allowed} open files, and the server needs {needed}"
        raise ConfigError(problem, remedy="raise the limit: ulimit -n")
    say(
        f"--connections is {connections:,}; {available:,} will be served at once, since the system "
        f"allows {allowed:,} open files (ulimit -n)"
    )
    return config.override(**{"limits.connections": available})


def _raise_open_files(wanted: int) -> int:
    """Raise the limit of open files to what is wanted, or may be had; return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if raised <= soft:
        return raised
    # macOS may say that there is no limit where there is one
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        return raised
    return soft


def listening(config: ServeConfig) -> socket.socket:
    """Return a socket that listens at the address; raises `ConfigError` where that cannot be."""
    address_text = f"{config.host}:{config.port}"
    try:
        result = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, where = result[0]
        listener = socket.socket(family, kind, protocol)
        try:
            # else the port of a server that has just ended is taken for a minute
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen()
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        # a UnicodeError is that of a host which is no name
        number = getattr(error, "errno", None)
        raise ConfigError(
            f"cannot listen at {address_text}: {getattr(error, 'strerror', None) or error}",
            remedy=_LISTENING.get(number or 0, "give --host a name or an address of this machine"),
        ) from error
    return listener


async def _serve(config: ServeConfig, keys: Keys, listener: socket.socket) -> None:
    from bertsmith.serving.dispatch.gateway import Gateway
    from bertsmith.serving.dispatch.workers import ForkServer, Listener, WorkerProcess
    from bertsmith.serving.http.app import make_app
    from bertsmith.serving.http.http_server import HttpServer

    workers, threads = division(config)
    forks = ForkServer(config, threads)
    tasks: set[asyncio.Task[None]] = set()

    def start(listen: Listener, lane: Lane) -> WorkerProcess:
        process = WorkerProcess(forks, listen, lane)
        task = asyncio.get_running_loop().create_task(process.listen())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return process

    stop_requested = asyncio.Event()
    gateway = Gateway(config.limits, start, workers, lanes(config))
    with _signals(stop_requested.set):
        app = make_app(gateway, config, keys)
        at_end = listener.dup()
        http = HttpServer(app, listener, config.limits)
        gateway.start()
        serving = asyncio.create_task(http.run())
        easing = asyncio.create_task(_ease_overload(app))
        # it ends without a request only by a fault
        serving.add_done_callback(lambda _: stop_requested.set())
        port = at_end.getsockname()[1]
        say(f"listening at {address(config, port)}; opening {counted(len(config.models), 'model')}")
        try:
            await _wait_until_open(gateway.opened, stop_requested)
            if not stop_requested.is_set():
                for line in table(gateway.models, address(config, port)):
                    say(line)
                lane_note = (
                    " for small and for large requests each" if len(lanes(config)) > 1 else ""
                )
                with_threads = f"{counted(workers, 'worker')} of {counted(threads, 'thread')}"
                _relax_collector()
                say(f"ready: {with_threads}{lane_note}")
                await stop_requested.wait()
                assert not serving.done(), "the HTTP server has ended by itself"
                await _drain(gateway, app, config, at_end, stop_requested)
        finally:
            easing.cancel()
            gateway.stop()
            http.end()
            at_end.close()
            await asyncio.wait((serving,), timeout=5)
            await asyncio.gather(*tasks, forks.stop(), return_exceptions=True)
    say("stopped")


def _relax_collector() -> None:
    """Make the pauses of Python's collector rare, and spare it all that was imported.

    By default it goes through thousands of requests that wait, every two seconds for up to a tenth
    of a second in which nobody is answered, and finds nothing: requests leave no cycles behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_CONTAINERS, 20, 20)


async def _ease_overload(app: Limits) -> None:
    """Let HTTP look at requests together while hundreds of them are refused each second.

    To wake up for each of them is most of what a refusal costs, and takes that from the answers. So
    its threads interrupt no worker, and the event loop rests between two looks.
    """
    if not has_default_policy():
        # somebody has chosen another one
        return
    overloaded, before = False, app.overloaded
    while True:
        await (_rest_between_looks() if overloaded else asyncio.sleep(_OVERLOAD_SECONDS))
        refused, before = app.overloaded - before, app.overloaded
        eased, overloaded = overloaded, refused >= _OVERLOAD_SECONDS * _REFUSALS_A_SECOND
        if eased or overloaded:
            # again and again, as threads begin meanwhile
            batch_wakeups(overloaded)


async def _rest_between_looks() -> None:
    """Stop the event loop for a moment after each look at what has come, for half a second."""
    until = time.monotonic() + _OVERLOAD_SECONDS
    while time.monotonic() < until:
        # what came during the rest begins in the first pass, and its bodies are there in the second
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        time.sleep(_REST)


async def _wait_until_open(opened: asyncio.Future[None], stop_requested: asyncio.Event) -> None:
    """Wait until the models are open or the server is to end; raises `UserError`."""
    waiting = asyncio.create_task(stop_requested.wait())
    await asyncio.wait((opened, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if opened.done():
        opened.result()


async def _drain(
    gateway: Gateway,
    app: Limits,
    config: ServeConfig,
    listener: socket.socket,
    stop_requested: asyncio.Event,
) -> None:
    """Answer what is there; a second signal ends that at once."""
    gateway.leave()
    say(f"shutting down; requests in progress: {gateway.waiting:,}")
    stop_requested.clear()
    second_request = asyncio.create_task(stop_requested.wait())
    ending = asyncio.create_task(_end(gateway, app, config, listener))
    await asyncio.wait((second_request, ending), return_when=asyncio.FIRST_COMPLETED)
    for task in (second_request, ending):
        task.cancel()


def open_connections(port: int) -> int:
    """Count the connections to a port of this machine, as far as the system says (Linux)."""
    local, established, count = f":{port:04X}", "01", 0
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]:
                _, here, _, state, _ = line.split(maxsplit=4)
                count += here.endswith(local) and state == established
    return count


def refuse_connections(listener: socket.socket) -> None:
    """Make a listening socket ignore further connections, as far as the system can (Linux).

    Those that it has are served. Clients try again after a second, and are refused if nobody
    listens then; a socket that is closed resets all that were not accepted yet.
    """
    if sys.platform != "linux":
        return
    # a program of the kernel: if the packet's flags have SYN, nothing of it is taken, else all
    program = struct.pack(
        "HBBI" * 5,
        *(0x30, 0, 0, 13),
        *(0x54, 0, 0, 2),
        *(0x15, 0, 1, 2),
        *(0x06, 0, 0, 0),
        *(0x06, 0, 0, 0xFFFF_FFFF),
    )
    code = ctypes.create_string_buffer(program, len(program))
    with suppress(OSError):
        listener.setsockopt(
            socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", 5, ctypes.addressof(code))
        )


async def _end(gateway: Gateway, app: Limits, config: ServeConfig, listener: socket.socket) -> None:
    silent_until = time.monotonic() + _MAX_SILENT_SECONDS
    await asyncio.sleep(config.drain_delay)
    await gateway.drain()
    port = listener.getsockname()[1]
    until, last_seconds = time.monotonic() + _MAX_PARTING_SECONDS, _MAX_SILENT_SECONDS
    while time.monotonic() < until:
        if app.quiet(_QUIET) and (time.monotonic() >= silent_until or not open_connections(port)):
            last_seconds = _QUIET
            break
        await asyncio.sleep(_TICK)
    refuse_connections(listener)
    # clients that came until now have connected, and may get no processor for a while to ask
    until = time.monotonic() + last_seconds
    while open_connections(port) and time.monotonic() < until:
        await asyncio.sleep(_TICK)


@contextmanager
def _signals(ask: Callable[[], None]) -> Iterator[None]:
    """Call a function of the event loop for every signal that asks for an end."""
    loop = asyncio.get_running_loop()
    # those that are ignored, as below nohup, stay so
    wanted = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    for number in wanted:
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        for number in wanted:
            loop.remove_signal_handler(number)
