"""A forked process is from outside what Python started, but that it need not import torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forking

TOLD = """
import json, os, signal, sys
blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
print(json.dumps([
    sys.argv, sys.path, os.getcwd(), dict(os.environ), sys.stdin.read(), os.getppid(), blocked,
    os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), sorted(os.listdir("/proc/self/fd")),
    __name__, os.getpriority(os.PRIO_PROCESS, 0), len(os.listdir("/proc/self/task")),
]))
"""
IS_FORKED = "import sys; print('torch' in sys.modules)"


def both(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401
    """A command of Python, which says and ends the same whether it is forked or started."""
    forked = forking.run([sys.executable, *command], **options)
    usual = {"stdin": None} | options
    text = usual.pop("stdin") or ""
    started = subprocess.run(
        [sys.executable, *command], input=text, capture_output=True, text=True, check=False, **usual
    )
    assert forked.stdout.splitlines() == started.stdout.splitlines()
    assert forked.returncode == started.returncode
    # tracebacks have other lines above
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]
    return forked


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("print(5)", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('it is late')", 1),
        ("raise ValueError('seven')", 1),
        ("import os; os._exit(9)", 9),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import atexit; atexit.register(print, 'last'); print('first'); 1 / 0", 1),
        ("import threading as t; t.Timer(0.01, print, 'b').start(); print('a')", 0),
        ("import sys; sys.stdout.write('no end of the line')", 0),
    ],
)
def test_it_ends_as_python_does(program: str, status: int) -> None:
    assert both("-c", program).returncode == status


def test_it_has_what_it_is_given(tmp_path: Path) -> None:
    place = tmp_path / "sub"
    place.mkdir()
    (tmp_path / "told.py").write_text(TOLD, "utf-8")
    environment = {**os.environ, "A": "b=c", "PYTHONPATH": str(tmp_path)}
    reading, writing = os.pipe()
    for command in (["-c", TOLD, "x", "-y"], ["-m", "told", "-c"], ["../told.py", "z"]):
        for options in ({}, {"start_new_session": True}, {"process_group": 0}):
            both(
                *command, cwd=place, env=environment, stdin="dogs\n", pass_fds=(writing,), **options
            )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        both("-c", TOLD, env=dict(os.environ))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    forking.run([sys.executable, "-c", f"import os; os.write({writing}, b'cats')"])
    forking.run(
        [sys.executable, "-c", f"import os; os.write({writing}, b'cats')"], pass_fds=(writing,)
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"cats"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_hears_signals(number: signal.Signals) -> None:
    program = "import signal; print(7, flush=True); signal.pause()"
    with forking.Forked[str](
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "7\n"
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait() == -number


@pytest.mark.parametrize(
    ("name", "value", "forked"),
    [("A", "b", True), ("OMP_NUM_THREADS", "7", False), ("PYTHONHASHSEED", "7", False)],
)
def test_what_is_read_early_needs_a_process_of_its_own(name: str, value: str, forked: bool) -> None:
    done = forking.run([sys.executable, "-c", IS_FORKED], env={**os.environ, name: value})
    assert done.stdout == f"{forked}\n"
    assert forking.run([sys.executable, "-I", "-c", IS_FORKED]).stdout == "False\n"


def test_nothing_runs_beside_the_server_and_it_keeps_no_file() -> None:
    here = Path(f"/proc/{forking.server().number}")
    assert len(list((here / "task").iterdir())) == 1
    # three streams, the socket, and the pipe by which it knows that we live
    assert len(list((here / "fd").iterdir())) == 5


def test_a_shell_finds_the_command(tmp_path: Path) -> None:
    path = os.pathsep.join([str(forking.programs(tmp_path)), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", "bertsmith --version | cat; bertsmith nothing"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("bertsmith ")
    assert done.stderr.startswith("bertsmith: there is no verb 'nothing'")
    assert done.returncode == 2
