"""Ctrl-C in the first moments of a command, while modules are still imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Ctrl-C comes when the named module is looked for, in code that was a string, as dataclasses' own
STARTER = """
import runpy, signal, sys

wanted = sys.argv.pop(1)

class Finder:
    def find_spec(self, name, *_):
        if name == wanted:
            sys.meta_path.remove(self)
            exec("signal.raise_signal(signal.SIGINT)")

sys.meta_path.insert(0, Finder())
runpy.run_module("bertsmith", run_name="__main__")
"""


@pytest.mark.parametrize("name", ["cli", "cli.command", "recipes.config", "recipes.vocabulary"])
def test_ctrl_c_while_modules_are_imported_ends_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "starter.py").write_text(STARTER)
    ended = subprocess.run(
        [sys.executable, "-m", "starter", f"bertsmith.{name}", "vocab", "learn", "a", "--out", "b"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (130, b"")
    assert ended.stderr.decode() == "bertsmith: interrupted\n"
