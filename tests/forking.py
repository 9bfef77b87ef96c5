"""Processes of Python that need not import torch: they are forked from one that has.

`Forked` and `run` are `subprocess.Popen` and `subprocess.run` for a command of this Python, given
as `[sys.executable, "-c", code]`, with `-m module` or with a script. `programs` makes the program
`bertsmith`, for commands of a shell.

Both ask a server (`python forking.py ADDRESS ...`), which the first of them starts. It imports what
commands need, and uses no thread of torch, so that forking is safe. A forked process becomes a
child of the process that asked, and has its own arguments, folder, environment, streams, limits and
mask of signals. It differs from one that Python starts in what is read before the first line of a
program: a test of that, of what is imported, of hashes' seeds or of memory takes `subprocess`
itself.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from inspect import signature
from pathlib import Path
from typing import Any, AnyStr, NamedTuple, NoReturn

IMPORTED = (
    "bertsmith.cli.main",
    "bertsmith.recipes.finetune.recipe", "bertsmith.recipes.pretrain.recipe",
    "bertsmith.recipes.embed", "bertsmith.recipes.predict.recipe", "bertsmith.recipes.convert",
    "bertsmith.training.local", "bertsmith.recipes.finetune.workers",
    # torch imports these when it is first asked for an optimiser and for an empty model
    "torch._dynamo", "torch.fx.experimental.symbolic_shapes",
    # for the baselines of fine-tuning
    "scipy.stats", "sklearn.feature_extraction.text", "sklearn.linear_model", "sklearn.pipeline",
    "tensorboard.compat.proto.event_pb2", "matplotlib.figure", "matplotlib.backends.backend_svg",
)  # fmt: skip
# what libraries read when they are loaded, and Python when it starts
_READ_EARLY = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "ATEN_", "TORCH_", "NPY_",
    "LD_", "GLIBC_", "MALLOC_", "PYTHON",
)  # fmt: skip
_PATH = "PYTHONPATH"
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
FORK_WORKERS = "FORK_WORKERS"
"""A variable of the environment: a forked process that has it forks its own workers, too."""
_PROGRAMS = ("bertsmith", "run-script")
_LIMITS: list[int] = [getattr(resource, name) for name in dir(resource) if "RLIMIT_" in name]
_SET_CHILD_SUBREAPER = 36
_LENGTH_BYTES = 4

# what a shell finds under the name bertsmith; -I and -S make it quick to start
_CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
asked = dict(
    argv=[sys.argv[0], *sys.argv[1:]], place=os.getcwd(), environment=dict(os.environ),
    kept=[0, 1, 2], blocked=[], session=False, group=-1, limits=[], adopted=False,
)
text = json.dumps(asked).encode()
socket.send_fds(server, [len(text).to_bytes({length}, "big")], [0, 1, 2])
server.sendall(text)
answer = server.recv(1)
sys.exit(answer[0] if answer else 1)
"""


class Request(NamedTuple):
    """A process that is asked for."""

    argv: Sequence[str]
    """What follows the name of the interpreter; the path of a program that `programs` made."""
    place: str
    environment: Mapping[str, str]
    kept: Sequence[int]
    """The numbers that the files sent along have in the process."""
    blocked: Sequence[int]
    """Signals that are blocked."""
    session: bool
    """True if it leads a session of its own."""
    group: int
    """The group of processes that it joins, 0 for one of its own, -1 for that of the server."""
    limits: Sequence[tuple[int, int, int]]
    """Limits of the system by their numbers: what it may use, and what it may ask for."""
    adopted: bool
    """True if it becomes a child of the process that asked, which is told its number; else that
    process is told its status."""


class Server(NamedTuple):
    """A process that others are forked from, as this one sees it."""

    number: int
    address: str
    environment: Mapping[str, str]
    """The environment in which libraries were loaded."""

    def fork(self, asked: Request, files: Sequence[int]) -> int:
        """Start a process with open files; return its number."""
        libc = ctypes.CDLL(None)
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self.address)
            text = json.dumps(asked._asdict()).encode()
            # orphans of this process's children become its own
            libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(server, [len(text).to_bytes(_LENGTH_BYTES, "big")], files)
                server.sendall(text)
                number = server.recv(16)
            finally:
                libc.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert number, "the server of processes has died"
        return int(number)


_servers: list[Server] = []


def server() -> Server:
    """Return the server of this process, started if there is none; it ends with this process."""
    if not _servers:
        _servers.append(_started())
    return _servers[0]


def _started() -> Server:
    folder = Path(tempfile.mkdtemp(prefix="forking-"))
    # a width that rich reads once
    environment = {n: value for n, value in os.environ.items() if n not in ("COLUMNS", "LINES")}
    reading, writing = os.pipe()
    address = str(folder / "socket")
    process = subprocess.Popen(
        [sys.executable, __file__, address, str(reading)],
        env=environment,
        pass_fds=(reading,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    os.close(reading)
    assert process.stdout is not None
    with process.stdout as ready:
        assert ready.read(1), "the server of processes did not start"

    def end() -> None:
        os.close(writing)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return Server(process.pid, address, environment)


class Forked(subprocess.Popen[AnyStr]):
    """A process of this Python, forked where that makes no difference, and started where it does.

    It takes the arguments of `subprocess.Popen`.
    """

    def _execute_child(self, *given: Any) -> None:  # noqa: ANN401
        """Start the process; Popen has made the pipes."""
        whole = subprocess.Popen._execute_child  # type: ignore[attr-defined]
        asked: dict[str, Any] = signature(whole).bind(self, *given).arguments
        argv = [os.fsdecode(item) for item in asked["args"]]
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        usual = not (asked["preexec_fn"] or asked["shell"] or asked["umask"] >= 0)
        if not (usual and forkable(argv, environment)):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        ends = (asked["p2cread"], asked["c2pwrite"], asked["errwrite"])
        streams: list[int] = [n if end == -1 else end for n, end in enumerate(ends)]
        request = Request(
            argv=argv[1:],
            place=os.path.realpath(asked["cwd"] or os.curdir),
            environment=environment,
            kept=[0, 1, 2, *asked["pass_fds"]],
            blocked=sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            session=asked["start_new_session"],
            group=asked["process_group"],
            limits=_limits(),
            adopted=True,
        )
        try:
            self.pid = server().fork(request, [*streams, *asked["pass_fds"]])
            self._child_created = True
        finally:
            ours = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(asked[name] for name in ours))  # type: ignore[attr-defined]


def _limits() -> list[tuple[int, int, int]]:
    """Return the limits of this process, by their numbers."""
    found = []
    for kind in _LIMITS:
        soft, hard = resource.getrlimit(kind)
        found.append((kind, soft, hard))
    return found


def forkable(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a forked process does what one does that is started with this command."""
    own = argv[0] == sys.executable and (argv[1] in ("-c", "-m") or argv[1].endswith(".py"))
    if not own or sys.platform != "linux":
        return False
    before = server().environment
    names = [item for item in {*environment, *before} if item.startswith(_READ_EARLY)]
    names = [name for name in names if name not in (_PATH, _NO_BYTECODE)]
    return all(environment.get(name) == before.get(name) for name in names) and (
        not any(Path(path, "sitecustomize.py").exists() for path in _named(environment))
    )


def _named(environment: Mapping[str, str]) -> list[str]:
    """Return the places of modules that an environment names."""
    paths = environment.get(_PATH, "").split(os.pathsep)
    return [os.path.abspath(path) for path in paths if path]


def run(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    check: bool = False,
    **options: Any,  # noqa: ANN401
) -> subprocess.CompletedProcess[str]:
    """Run a command of this Python as `subprocess.run` with text and its output captured does."""
    pipe = subprocess.PIPE
    options = {"stdout": pipe, "stderr": pipe} | options
    entry = subprocess.DEVNULL if stdin is None else pipe
    with Forked[str](command, stdin=entry, text=True, **options) as process:
        out, err = process.communicate(stdin)
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class _Workers:
    """What bertsmith.training.processes takes from `subprocess`."""

    Popen = Forked
    DEVNULL = subprocess.DEVNULL


@contextmanager
def forked_workers() -> Iterator[None]:
    """Fork the processes that load batches, compute parts of them or train beside others."""
    # the server has no use for it
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertsmith.training.processes.subprocess", _Workers)
        yield


class _Opening:
    """What bertsmith.weights.conversion.pickled takes from `subprocess`."""

    DEVNULL = subprocess.DEVNULL
    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def run(
        command: Sequence[str],
        *,
        input: bytes,
        timeout: float,
        env: Mapping[str, str],
        stdout: int,
        stderr: int,
        check: bool,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the module that a command ends with, without the options of Python before it."""
        del env, check
        with Forked[bytes](
            [command[0], *command[-2:]], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr
        ) as process:
            try:
                process.communicate(input, timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode)


@contextmanager
def forked_opening() -> Iterator[None]:
    """Fork the processes that open pickled weights."""
    # the server has no use for it
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertsmith.weights.conversion.pickled.subprocess", _Opening)
        yield


def programs(folder: Path) -> Path:
    """Make a folder with a program `bertsmith`, and one `run-script` that runs a Python script."""
    made = folder / "programs"
    made.mkdir()
    text = _CLIENT.format(python=sys.executable, address=server().address, length=_LENGTH_BYTES)
    for name in _PROGRAMS:
        program = made / name
        program.write_text(text, "utf-8")
        program.chmod(0o755)
    return made


def _serve(listening: socket.socket, alive: int) -> Request:
    """Answer requests until the other end of `alive` closes; return, in a new process, one."""
    # of Ctrl-C and of what ends a group, this one learns by `alive`; each request has its own mask
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    files: list[Any] = [listening, alive]
    while alive not in select.select(files, [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            os.close(alive)
            return _answer(connection)
        connection.close()
        # bury those that have ended
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    os._exit(0)


def _listening(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(address)
    made.listen()
    return made


def _answer(connection: socket.socket) -> Request:
    """Fork the process that is asked for; returns there, as that process."""
    length, files, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, 64)
    text = b""
    while len(text) < int.from_bytes(length, "big"):
        text += connection.recv(1 << 16)
    asked = Request(**json.loads(text))
    between = os.getpid()
    child = os.fork()
    if child:
        if not asked.adopted:
            _, status = os.waitpid(child, 0)
            connection.sendall(bytes([os.waitstatus_to_exitcode(status) & 255]))
        os._exit(0)
    if asked.adopted:
        while os.getppid() == between:
            time.sleep(0.0002)
        connection.sendall(str(os.getpid()).encode())
    connection.close()
    _become(asked, files)
    return asked


def _become(asked: Request, files: Sequence[int]) -> None:
    """Let this process have what it was asked to have."""
    # first away from the numbers that they may have to take
    high = max(*asked.kept, *files) + 1
    moved = [os.dup2(file, high + place) for place, file in enumerate(files)]
    for number in {*files} - {*asked.kept}:
        os.close(number)
    for number, item in zip(asked.kept, moved, strict=True):
        os.dup2(item, number)
        os.close(item)
    os.chdir(asked.place)
    os.environ.clear()
    os.environ.update(asked.environment)
    sys.dont_write_bytecode = bool(asked.environment.get(_NO_BYTECODE))
    if asked.session:
        os.setsid()
    elif asked.group >= 0:
        os.setpgid(0, asked.group)
    signal.pthread_sigmask(signal.SIG_SETMASK, asked.blocked)
    for number, *limit in asked.limits:
        resource.setrlimit(number, (limit[0], limit[1]))


def _perform(asked: Request, base: Sequence[str]) -> None:
    """Run the program of a request; `base` are the places of modules that every process has."""
    first, *rest = asked.argv
    own = {"-c": "", "-m": asked.place}.get(first, str(Path(first).resolve().parent))
    sys.path[:] = [own, *_named(asked.environment), *base]
    if first == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif Path(first).name == "bertsmith":
        from bertsmith.cli.main import main as bertsmith

        sys.argv[:] = asked.argv
        sys.exit(bertsmith())
    else:
        sys.argv[:] = rest if Path(first).name == "run-script" else asked.argv
        sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


def _end_after(asked: Request, base: Sequence[str], end: Callable[[], None]) -> NoReturn:
    """Run a request, and end as Python does, but for freeing memory; `end` is called last."""
    status = 0
    try:
        _perform(asked, base)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if not isinstance(stop.code, int | None):
            print(stop.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
        if isinstance(error, KeyboardInterrupt):
            status = -signal.SIGINT
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    end()
    if status < 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 255)


def _with_server(asked: Request, before: Server) -> tuple[Request, Callable[[], None]]:
    """Fork a server for the workers of a command, while this process has no thread yet.

    Returns in the process of the command, with what ends the server, and in each worker, whose
    request it is.
    """
    address = f"{before.address}.{os.getpid()}"
    listening = _listening(address)
    reading, writing = os.pipe()
    number = os.fork()
    if not number:
        os.close(writing)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        os.close(nothing)
        return _serve(listening, reading), lambda: None
    listening.close()
    os.close(reading)
    _servers.append(Server(number, address, before.environment))
    processes = importlib.import_module("bertsmith.training.processes")
    processes.subprocess = _Workers  # type: ignore[attr-defined]

    def end() -> None:
        os.close(writing)
        os.waitpid(number, 0)
        Path(address).unlink(missing_ok=True)

    return asked, end


def _main() -> NoReturn:
    before = Server(os.getpid(), sys.argv[1], dict(os.environ))
    named = set(_named(os.environ))
    base = [item for item in sys.path[1:] if item not in named]
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    # else the collector would write to all objects, and so copy them, in every process
    gc.freeze()
    listening = _listening(before.address)
    os.write(1, b"1")
    asked, end = _serve(listening, int(sys.argv[2])), lambda: None
    if Path(asked.argv[0]).name in _PROGRAMS or FORK_WORKERS in asked.environment:
        asked, end = _with_server(asked, before)
    _end_after(asked, base, end)


if __name__ == "__main__":
    _main()
