"""Processes of bertsmith that need not import torch: they are forked from one that has.

`python forking.py SOCKET` imports what commands need and waits for requests. A request comes
from the program `bertsmith` in the folder that `started` makes, or from a program of ours that runs
a script, with its arguments, working folder, environment and its three streams. What is asked for
then runs in a process of its own, as if it had been started there. Nothing has used a thread of
torch by then, so forking is safe.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bertsmith.cli.main import main

# what the user's shell finds under the name bertsmith; -I and -S make it quick to start
_CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
asked = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(asked).to_bytes(4, "big")], [0, 1, 2])
server.sendall(asked)
answer = server.recv(1)
sys.exit(answer[0] if answer else 1)
"""
_IMPORTED = (
    "bertsmith.recipes.finetune.recipe", "bertsmith.recipes.pretrain.recipe",
    "bertsmith.recipes.embed", "bertsmith.recipes.predict.recipe", "bertsmith.recipes.convert",
    "tensorboard.compat.proto.event_pb2", "matplotlib.figure", "matplotlib.backends.backend_svg",
)  # fmt: skip


@contextmanager
def started(folder: Path) -> Iterator[Path]:
    """A folder with a program `bertsmith`, and one `run-script` that runs a Python script."""
    address = str(folder / "socket")
    programs = folder / "programs"
    programs.mkdir()
    for name in ("bertsmith", "run-script"):
        program = programs / name
        program.write_text(_CLIENT.format(python=sys.executable, address=address), "utf-8")
        program.chmod(0o755)
    reading, writing = os.pipe()
    server = subprocess.Popen(
        [sys.executable, __file__, address, str(writing)], pass_fds=(writing,)
    )
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as ready:
            assert ready.read(1), "the server of processes did not start"
        yield programs
    finally:
        server.kill()
        server.wait()


def _serve(address: str, ready: int) -> None:
    """Answer requests until a signal ends this."""
    for name in _IMPORTED:
        __import__(name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        os.write(ready, b"1")
        os.close(ready)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _answer(connection)
            connection.close()
            _reap()


def _reap() -> None:
    """Bury the answering processes that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(connection: socket.socket) -> None:
    """Run what is asked for in a process of its own, and tell its status."""
    length, streams, _, _ = socket.recv_fds(connection, 4, 3)
    asked = b""
    while len(asked) < int.from_bytes(length, "big"):
        asked += connection.recv(1 << 16)
    child = os.fork()
    if child == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        argv, place, environment = json.loads(asked)
        os.chdir(place)
        os.environ.clear()
        os.environ.update(environment)
        _run(argv)
    _, status = os.waitpid(child, 0)
    connection.sendall(bytes([os.waitstatus_to_exitcode(status) & 255]))
    os._exit(0)


def _run(argv: list[str]) -> None:
    """Do what the program does, and end as Python would."""
    program, *arguments = argv
    code = 0
    try:
        if Path(program).name == "run-script":
            sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).parent)
            runpy.run_path(arguments[0], run_name="__main__")
        else:
            sys.argv = argv
            code = main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
