"""Answers for hundreds of thousands of rows, in a process whose memory is watched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults

_PROGRAM = """
import sys
from bertsmith.cli import main
status = main.main(sys.argv[1:])
# the peak of getrusage begins with that of the process that started this one
lines = open("/proc/self/status").read().splitlines()
print(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(status)
"""


def peak(model: str, file: Path, answers: Path) -> int:
    """Kibibytes of memory at most while a file is answered."""
    command = [sys.executable, "-c", _PROGRAM, "predict", model, str(file), "--format", "jsonl"]
    with answers.open("wb") as out:
        done = subprocess.run(
            command, env=dict(os.environ), stdout=out, stderr=subprocess.PIPE, check=True
        )
    return int(done.stderr.split()[-1])


def test_memory_does_not_grow_with_the_rows(shared: dict[str, str], tmp_path: Path) -> None:
    peaks = []
    for count in (10_000, 200_000):
        file, answers = tmp_path / f"{count}.txt", tmp_path / f"{count}.jsonl"
        with file.open("w", encoding="utf-8") as texts:
            # the tokenizer remembers words, within a bound of its own
            texts.writelines(f"row {number % 1000} of many\n" for number in range(count))
        peaks.append(peak(shared["classifier"], file, answers))
        found, last = 0, ""
        with answers.open(encoding="utf-8") as lines:
            for line in lines:
                found, last = found + 1, line
        assert found == count
        assert json.loads(last)["text"] == "row 999 of many"
    assert peaks[1] < peaks[0] + 30_000, peaks
