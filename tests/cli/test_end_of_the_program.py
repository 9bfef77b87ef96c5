"""What happens after the last line of a command: the process ends without freeing every object."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import atexit, os, sys, threading, time

import bertsmith.cli.main

class Late:
    def __del__(self, write=os.write):
        write(1, b"freed ")

def print_late(text):
    time.sleep(0.2)
    print(text, end=" ")

def run():
    sys.late = Late()
    atexit.register(print, "of a library", end=" ")
    threading.Thread(target=print_late, args=["of a thread"]).start()
    return 3

bertsmith.cli.main.main = run
from bertsmith.__main__ import main

{before}
sys.exit(main())
"""


def written(before: str, folder: Path) -> str:
    """Run a program that ends with status 3, and return what it writes."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
    )
    assert ended.returncode == 3
    assert not ended.stderr
    return ended.stdout.strip()


def test_what_libraries_do_at_the_end_is_done_and_nothing_is_freed(tmp_path: Path) -> None:
    """To free the objects of all modules took a quarter of a command's processor time."""
    assert written("", tmp_path) == "of a thread of a library"


def test_what_was_there_before_the_program_ends_as_in_any_other(tmp_path: Path) -> None:
    """A program that measures another, as coverage does, writes its figures last."""
    before = "atexit.register(print, 'of a measurement', end=' ')"
    assert "of a measurement" in written(before, tmp_path)
