"""Trainings side by side whose parent is killed: they end with it, and the run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from invented import SYLLABLES

pytestmark = pytest.mark.faults

# in the third step of seed 1 its process ends the one that started it, and waits for its own end
_PROGRAM = """
import sys
from bertsmith.cli import main
from bertsmith.recipes.finetune import recipe
from recipes.signalling import Signalling, Step
experiment, steps = recipe.Experiment, {1: Step(number=3, kill_parent=True)}
recipe.Experiment = lambda make_model, **parts: experiment(
    make_model=Signalling(make=make_model, steps=steps if int(sys.argv[1]) else {}), **parts
)
sys.exit(main.main(sys.argv[2:]))
"""


def live(arguments: list[str], *, dies: bool) -> int:
    """The status of a fine-tuning; whoever holds its standard error has ended by then, too."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(int(dies)), *arguments],
        env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's word is Linux's")
def test_they_end_with_their_parent(shared: dict[str, str], tmp_path: Path) -> None:
    rows = ["text\tlabel"]
    rows += [f"{SYLLABLES[n % 40]} {SYLLABLES[n % 7]}\t{'ab'[n % 2]}" for n in range(60)]
    train = tmp_path / "train.tsv"
    train.write_text("\n".join(rows) + "\n", encoding="utf-8")
    whole, run = tmp_path / "whole", tmp_path / "run"
    arguments = [
        "finetune", shared["model"], str(train), "--seeds", "3", "--epochs", "1",
        "--batch-size", "8",
        "--precision", "fp32", "--task", "classify",
    ]  # fmt: skip
    assert live([*arguments, "--out", str(whole), "--side-by-side", "1"], dies=False) == 0
    here = [*arguments, "--out", str(run), "--side-by-side", "2"]
    assert live(here, dies=True) == -signal.SIGKILL
    assert not (run / "seeds" / "seed-1" / "result.json").exists()
    assert live(here, dies=False) == 0
    for name in ("model/model.safetensors", "seeds/seed-1/dev.json"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()
    scores = [json.loads((item / "results.json").read_text())["scores"] for item in (run, whole)]
    assert scores[0] == scores[1]
