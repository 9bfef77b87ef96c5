"""A grid with its seeds, stopped by Ctrl-C and killed outright, in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from invented import SYLLABLES

pytestmark = pytest.mark.faults

# the process that trains stops itself in the middle of the so-manyth step of all its trainings
_PROGRAM = """
import os, sys
from bertsmith.cli import main
from bertsmith.training import state
after, number = int(sys.argv[1]), int(sys.argv[2])
step, made = state.TrainState.step, [0]
def stepping(self, *given):
    step(self, *given)
    made[0] += 1
    if made[0] == after:
        os.kill(os.getpid(), number)
state.TrainState.step = stepping
sys.exit(main.main(sys.argv[3:]))
"""


def live(arguments: list[str], after: int = 0, number: int = 0) -> int:
    """The status of a fine-tuning that stops itself with a signal after so many steps."""
    command = [sys.executable, "-c", _PROGRAM, str(after), str(number), *arguments]
    done = subprocess.run(
        command, env=dict(os.environ), capture_output=True, timeout=300, check=False
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode


def told(run: Path) -> dict[str, Any]:
    """Return the figures of a run but for times, and for the hash that covers them."""
    results: dict[str, Any] = json.loads((run / "results.json").read_text(encoding="utf-8"))
    del results["sha256"]
    for item in (*results["seeds"], *results["grid"]):
        for time in {"seconds", "elapsed"} & item.keys():
            del item[time]
    for rival in results["baselines"]:
        del rival["seconds"]
    return results


def test_it_goes_on_where_it_was_to_the_same_end(shared: dict[str, str], tmp_path: Path) -> None:
    rows = ["text\tlabel"]
    rows += [f"{SYLLABLES[n % 40]} {SYLLABLES[n % 7]}\t{'ab'[n % 2]}" for n in range(60)]
    train = tmp_path / "train.tsv"
    train.write_text("\n".join(rows) + "\n", encoding="utf-8")
    arguments = [
        "finetune", shared["model"], str(train), "--seeds", "3", "--grid",
        "--search.learning-rates", "1e-3,1e-4", "--search.batch-sizes", "8", "--search.epochs", "1",
        "--epochs", "1", "--precision", "fp32", "--task", "classify",
    ]  # fmt: skip
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert live([*arguments, "--out", str(whole)]) == 0
    # seven steps a training: in the second cell, then in the first and the second seed
    here = [*arguments, "--out", str(run)]
    assert live(here, 10, signal.SIGINT) == 130
    assert not (run / "results.json").exists()
    assert live(here, 4 + 3, signal.SIGKILL) == -signal.SIGKILL
    assert live(here, 7 + 4, signal.SIGTERM) == 143
    assert live(here, 2, signal.SIGKILL) == -signal.SIGKILL
    assert live(here) == 0
    assert told(run) == told(whole)
    weights = [(item / "model" / "model.safetensors").read_bytes() for item in (run, whole)]
    assert weights[0] == weights[1]
    # nothing of the trainings is left but what they came to
    assert not list(run.rglob("checkpoints"))
    assert len(list(run.rglob("model.safetensors"))) == 1
