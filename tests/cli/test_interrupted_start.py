"""Ctrl-C in the first moments of a command, while modules are still imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# the signal comes when the named module is looked for, in code that was a string, as dataclasses'
# own; in the middle of a library in another language the interruption becomes an error without it
STARTER = """
import runpy, signal, sys

wanted, number = sys.argv.pop(1), int(sys.argv.pop(1))

class Finder:
    def find_spec(self, name, *_):
        if name == wanted:
            sys.meta_path.remove(self)
            try:
                exec("signal.raise_signal(number)")
            except KeyboardInterrupt:
                if name != "numpy":
                    raise
            if name == "numpy":
                raise SystemError("initialisation failed")

sys.meta_path.insert(0, Finder())
runpy.run_module("bertsmith", run_name="__main__")
"""


def started(folder: Path, module: str, number: int) -> tuple[int, str]:
    """Run a command that gets a signal when it imports a module; return status and output."""
    (folder / "starter.py").write_text(STARTER)
    command = ["starter", module, str(int(number)), "vocab", "learn", "a", "--out", "b"]
    ended = subprocess.run(
        [sys.executable, "-m", *command],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        cwd=folder,
        capture_output=True,
        check=False,
    )
    return ended.returncode, (ended.stdout + ended.stderr).decode()


NAMES = [f"bertsmith.{name}" for name in ("cli", "cli.command", "recipes.config")]


@pytest.mark.parametrize("name", [*NAMES, "bertsmith.recipes.vocabulary", "numpy"])
def test_ctrl_c_while_modules_are_imported_ends_in_one_line(name: str, tmp_path: Path) -> None:
    assert started(tmp_path, name, signal.SIGINT) == (130, "bertsmith: interrupted\n")


def test_so_does_a_request_to_terminate(tmp_path: Path) -> None:
    assert started(tmp_path, "numpy", signal.SIGTERM) == (143, "bertsmith: terminated\n")


# the second comes when modules are deleted, as libraries in other languages are after them
AT_THE_END = [
    "atexit.register(signal.raise_signal, number)",
    "late = type('Late', (), {'__del__': lambda _, end=signal.raise_signal: end(number)})()",
]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("late", AT_THE_END)
def test_signals_after_the_last_line_change_neither_output_nor_status(
    late: str, number: signal.Signals, tmp_path: Path
) -> None:
    """A command that was done counted as ended by the request to terminate."""
    late = late.replace("number", str(int(number)))
    script = f"""
import atexit, signal, sys

{late}
from bertsmith.__main__ import main

sys.argv = ["bertsmith", "no", "verb"]
sys.exit(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(b"bertsmith: there is no verb 'no'")
    assert ended.stderr.count(b"\n") == 1
