"""The environment that make uses: made here, or somebody's own, which is never cleared."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"
# stands for any Python, and writes down what it was to clear
PYTHON = """#!/bin/sh
if test "$2" = venv; then echo "$@" >> cleared; mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; fi
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def environment(folder: Path, *, marker: str = "") -> Path:
    """An environment with a Python, and the marker of the folder that has made it."""
    (folder / "bin").mkdir(parents=True)
    shutil.copy(folder.parent / "python", folder / "bin" / "python")
    if marker:
        (folder / marker).touch()
    return folder


def make(folder: Path) -> tuple[int, str, bool]:
    """Status and standard error of making the environment, and whether one was cleared."""
    own = subprocess.check_output(["sh", "-c", "pwd | cksum | tr ' ' '-'"], cwd=folder, text=True)
    shutil.copy(MAKEFILE, folder / "Makefile")
    # as from a shell, not as from the make that runs the tests
    from_shell = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    done = subprocess.run(
        ["make", "PYTHON=./python", f".venv/.made-{own.strip()}"],
        cwd=folder,
        env=from_shell,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr, (folder / "cleared").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "python").write_text(PYTHON, encoding="utf-8")
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "constraints.txt").touch()
    (tmp_path / "constraints-transformers5.txt").touch()
    return tmp_path


def test_an_environment_is_made_and_a_moved_one_made_anew(folder: Path) -> None:
    assert make(folder) == (0, "", True)
    (folder / "cleared").unlink()
    assert make(folder) == (0, "", False)
    (marker,) = (folder / ".venv").glob(".made-*")
    marker.rename(marker.with_name(".made-1-2-"))
    assert make(folder) == (0, "", True)


@pytest.mark.parametrize("linked", [False, True])
def test_somebody_s_own_is_used(folder: Path, *, linked: bool) -> None:
    if linked:
        (folder / ".venv").symlink_to(environment(folder / "own"))
    else:
        environment(folder / ".venv")
    assert make(folder) == (0, "", False)


def test_what_another_folder_has_made_is_not_cleared_through_a_link(folder: Path) -> None:
    (folder / ".venv").symlink_to(environment(folder / "shared", marker=".made-1-2-"))
    status, said, cleared = make(folder)
    assert (status, cleared) == (2, False)
    assert said.startswith("make: .venv is a link, ")
    assert said.count("\n") == 2  # make adds a line of its own
    assert (folder / "shared" / ".made-1-2-").exists()


def test_a_link_that_leads_nowhere_is_not_followed(folder: Path) -> None:
    (folder / ".venv").symlink_to(folder / "gone")
    assert make(folder)[::2] == (2, False)
