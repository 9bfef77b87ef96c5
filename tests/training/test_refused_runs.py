"""A run that is refused after it was claimed, before anything is trained, leaves nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from bertsmith.core.config import Config
from bertsmith.core.errors import StoreError
from bertsmith.core.files import write_json
from bertsmith.training.run_folder import HELD_OUT_PLAN, PREFLIGHT, RunFolder


@dataclass(frozen=True, kw_only=True)
class Settings(Config):
    """Settings of a run."""

    rate: float = 0.1
    """any number"""


def refused(out: Path, *, trained: bool = False) -> None:
    """Begin a run as pre-training does, and refuse it."""
    folder = RunFolder(out)
    with suppress(StoreError), folder.owned():
        folder.claim("pretrain", Settings())
        folder.record_verified({"tokens.bin": [1, 2]})
        write_json(out / HELD_OUT_PLAN, {"measurements": 1})
        write_json(out / PREFLIGHT, {"findings": []})
        if trained:
            folder.record({"step": 1, "seconds": 1.0})
        raise StoreError("holds one sentence", where=out)


@pytest.mark.parametrize("there", [False, True])
def test_a_run_refused_before_its_first_step_leaves_nothing(tmp_path: Path, there: bool) -> None:
    out = tmp_path / "made" / "run"
    if there:
        out.mkdir(parents=True)
    refused(out)
    assert list(tmp_path.rglob("*")) == ([out.parent, out] if there else [])
    # a second command, with other settings, begins anew
    with RunFolder(out).owned():
        assert not RunFolder(out).claim("pretrain", Settings(rate=0.2))


def test_a_run_that_has_trained_is_kept(tmp_path: Path) -> None:
    refused(tmp_path / "run", trained=True)
    assert {"run.json", "log.jsonl"} <= {path.name for path in (tmp_path / "run").iterdir()}
