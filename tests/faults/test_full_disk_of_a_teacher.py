"""A disk without room for what a teacher gives: a line says so, and nothing is left on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.weights.folder import save_model
from faults.test_full_disk import Disk, disk
from invented import syllable_tokenizer

__all__ = ["disk"]

# in a process of its own: what a full disk does to a page of a mapped file ends the process
KEEP = """
import sys
from pathlib import Path
import numpy as np, torch
from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import DiskError
from bertsmith.network.encoded import Taps
from bertsmith.recipes.distil.teacher import TeacherOutputs, TeacherRows

teacher, cache = map(Path, sys.argv[1:])
rows = EncodedExamples.of([np.full(60, 7, np.int32)] * 400, [np.zeros(60, np.int8)] * 400)
taps = Taps(states=frozenset({1, 2}))
outputs = TeacherOutputs(taps=taps, answer=None, precision="fp32")
try:
    TeacherRows(teacher, rows, outputs, torch.device("cpu")).keep(cache, 4.0)
except DiskError as error:
    print(error)
"""


@pytest.mark.faults
def test_the_outputs_of_a_teacher(disk: Disk, tmp_path: Path) -> None:
    tokenizer = syllable_tokenizer()
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=64, layers=2, heads=2, feed_forward=40, longest=64
    )
    save_model(tmp_path / "teacher", build_model(ModelConfig(encoder=encoder), seed=1), tokenizer)
    cache = disk.place / "cache"
    cache.mkdir()
    command = [sys.executable, "-c", KEEP, str(tmp_path / "teacher"), str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    where, _, refused = done.stdout.partition(": ")
    assert Path(where).parent == cache
    assert refused == (
        "cannot be written: No space left on device; make room, then give the same command again\n"
    )
    assert not list(cache.iterdir())
