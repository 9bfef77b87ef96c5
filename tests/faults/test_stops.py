"""Ctrl-C and SIGTERM, with processes that draw batches: saved, and resumed to the same run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.lives import Run, Trainee, trainee

STEPS = 24


@pytest.fixture(scope="module")
def alive(shared: dict[str, str]) -> Iterator[Trainee]:
    with trainee(Path(shared["store"])) as process:
        yield process


def test_a_stopped_run_goes_on_as_the_same(alive: Trainee, tmp_path: Path) -> None:
    whole, run = Run(tmp_path / "whole", STEPS), Run(tmp_path / "run", STEPS)
    assert alive.live(whole).status == 0
    lives = (
        # between two batches of a step: the first is drawn again
        ({"signal": signal.SIGTERM, "moment": "batch", "number": 5, "workers": 2}, 2),
        # while measuring: what was measured so far is dropped
        ({"signal": signal.SIGINT, "moment": "measure", "number": 1}, 6),
        # while a checkpoint is written
        ({"signal": signal.SIGTERM, "moment": "write", "number": 20, "workers": 1}, None),
    )
    for life, step in lives:
        ended = alive.live(run, **life)
        assert (ended.status, ended.alone) == (130, True)
        if step is not None:
            assert run.checkpoints[-1].name == f"step-{step:08}"
    assert alive.live(run).status == 0
    assert run.log() == whole.log()
    assert run.hashes() == whole.hashes()
    assert run.shown() == whole.shown()
