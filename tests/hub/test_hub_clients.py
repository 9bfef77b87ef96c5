"""The hub with the client of today: these tests' neighbours once more, in a process that has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_fetching_and_sending_with_huggingface_hub_2(transformers5_folder: Path) -> None:
    pytest.importorskip("huggingface_hub")
    source = str(HERE.parent.parent / "src")
    asked = subprocess.run(
        [sys.executable, "-c", "import huggingface_hub as hub; print(hub.__version__)"],
        env=os.environ | {"PYTHONPATH": str(transformers5_folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(asked.stdout.partition(".")[0]) >= 2
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *(HERE / "test_hub_fetching.py", HERE / "test_hub_push.py"),
            # what does not reach the client
            *("-k", "not card and not names and not revisions and not wrote and not dry_run"),
        ],
        cwd=HERE.parent.parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(transformers5_folder), source])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
