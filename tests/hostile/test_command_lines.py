"""Odd options on every verb: a status that is explained, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import campaigns
from bertsmith.tokens.tokenizer import Tokenizer
from hostile.command_lines import command_line, make_inputs, run_cases

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def place(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    make_inputs(folder, tokenizer)
    return folder


@pytest.mark.parametrize("first", range(0, 30, 15))
def test_odd_options(first: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    # all of them end by themselves: an import that is interrupted would spoil what follows here
    assert run_cases(range(first, first + 15), seconds=600) == []


def test_a_case_is_the_same_again() -> None:
    assert command_line(7) == command_line(7) != command_line(8)


@pytest.mark.faults
@pytest.mark.parametrize("sixth", range(6))
def test_many_odd_options(sixth: int) -> None:
    """Three thousand cases, or as many of other numbers (campaigns.py)."""
    numbers = campaigns.numbers(3000)
    cases = numbers[len(numbers) * sixth // 6 : len(numbers) * (sixth + 1) // 6]
    paths = [str(HERE.parents[1] / "src"), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    chosen = [str(len(cases)), "--first", str(1000 + cases.start)]
    done = subprocess.run(
        [sys.executable, "-m", "hostile.command_lines", *chosen],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
