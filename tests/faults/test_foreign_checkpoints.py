"""Checkpoints and results of another run, copied in, are named and skipped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from bertsmith.core.errors import RunFolderError
from bertsmith.core.files import commit
from bertsmith.recipes.finetune.trial import TrialResult, read_result
from bertsmith.training import checkpoints
from bertsmith.training.checkpoints import Checkpoint, Checkpoints, State
from bertsmith.training.run_folder import RunFolder, write_record
from bertsmith.training.state import Saver
from faults.shell import Shell


def save(folder: Path, run: str, *steps: int) -> None:
    for step in steps:
        tensors = {"a": torch.randn(3)}
        checkpoint = Checkpoint(state=State(step=step), weights=tensors, optimiser=tensors)
        Checkpoints(folder, keep=9, run=run).save(checkpoint)


def loaded(folder: Path, run: str) -> int | None:
    found = Checkpoints(folder, run=run).load()
    return found.state.step if found else None


def test_a_newer_checkpoint_of_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "own", "own", 3, 5)
    save(tmp_path / "other", "other", 8, 9)
    for step in (8, 9):
        shutil.copytree(
            tmp_path / f"other/step-0000000{step}", tmp_path / f"own/step-0000000{step}"
        )
    assert loaded(tmp_path / "own", "own") == 5
    told = "".join(capsys.readouterr().err.split())
    for step in (8, 9):
        assert f"own/step-0000000{step}:belongstoanotherrun;skipped" in told
    # they are the user's: neither counted among the newest nor deleted
    checkpoints = Checkpoints(tmp_path / "own", keep=1, run="own")
    assert checkpoints.load() is not None
    checkpoints.save(Checkpoint(state=State(step=6), weights={}, optimiser={}))
    assert sorted(path.name[-1] for path in (tmp_path / "own").iterdir()) == ["6", "8", "9"]


def test_nothing_but_checkpoints_of_another_run(tmp_path: Path) -> None:
    save(tmp_path, "other", 8)
    assert loaded(tmp_path, "own") is None
    with pytest.raises(RunFolderError, match="belongs to another run"):
        Checkpoints(tmp_path, run="own").best(State(step=9, best_step=8))


def test_one_of_another_run_makes_room_for_that_of_the_same_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was deleted."""
    save(tmp_path, "other", 3, 8)
    other = (tmp_path / "step-00000008" / "weights.safetensors").read_bytes()
    assert loaded(tmp_path, "own") is None
    checkpoints = Checkpoints(tmp_path, run="own")
    assert checkpoints.load() is None
    checkpoints.save(Checkpoint(state=State(step=8), weights={}, optimiser={}))
    assert loaded(tmp_path, "own") == 8
    assert (tmp_path / "other-step-00000008" / "weights.safetensors").read_bytes() == other
    assert (tmp_path / "step-00000003").exists()
    told = " ".join(capsys.readouterr().err.split())
    assert "step-00000008: belongs to another run; renamed to other-step-00000008" in told


def test_older_ones_of_another_run_are_not_deleted_either(tmp_path: Path) -> None:
    """Those below the step that a run resumed from were deleted as old ones of its own."""
    save(tmp_path, "other", 2)
    save(tmp_path, "own", 5)
    checkpoints = Checkpoints(tmp_path, keep=1, run="own")
    assert checkpoints.load() is not None
    checkpoints.tidy(State(step=5))
    for step in (6, 7):
        checkpoints.save(Checkpoint(state=State(step=step), weights={}, optimiser={}))
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["2", "7"]


def test_own_ones_that_are_all_damaged_are_no_new_beginning(tmp_path: Path) -> None:
    save(tmp_path, "other", 8)
    save(tmp_path, "own", 3)
    (tmp_path / "step-00000003" / "state.json").unlink()
    with pytest.raises(RunFolderError, match="no checkpoint is complete"):
        loaded(tmp_path, "own")


def test_a_longer_run_does_not_go_on_in_a_shorter_one(shell: Shell) -> None:
    command = "pretrain {store} --out short --model tiny --steps 2 --tokens-per-batch 320"
    assert shell.run(command)[0] == 0
    Path("short/result.json").unlink()
    save(Path("short/checkpoints"), "long", 5)
    status, told = shell.run(command)
    assert status == 0
    assert "step-00000005: belongs to another run; skipped" in " ".join(told.split())
    assert json.loads(Path("short/result.json").read_text())["state"]["step"] == 2


def test_the_result_of_another_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = TrialResult(
        seed=0, scores={"accuracy": 0.5}, constant=False, losses=[(1, 0.5)], seconds=1.0, tokens=9
    )
    whole = RunFolder(tmp_path)
    one, other = (RunFolder(tmp_path / name, part_of=whole) for name in ("one", "other"))
    for place in (one, other):
        place.path.mkdir()
    assert read_result(one) is None
    write_record(one.path / "result.json", {"run": one.identity, **result.to_dict()})
    assert read_result(one) == result
    shutil.copy(one.path / "result.json", other.path)
    assert read_result(other) is None
    assert "belongs to another run" in " ".join(capsys.readouterr().err.split())


COMMAND = "pretrain {store} --out run --model tiny --steps 3 --log-every 1 --tokens-per-batch 320"


def test_a_run_deleted_while_it_goes_on(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted_after_step_two(monkeypatch, ".")
    line = shell.failed(COMMAND)
    assert line.endswith(
        "run/log.jsonl: was deleted while it was in use; give the same command again"
    )


def test_checkpoints_deleted_between_two_of_them(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted_after_step_two(monkeypatch, "checkpoints")
    assert shell.run(COMMAND)[0] == 0


def test_a_checkpoint_deleted_while_it_is_written(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleting(names: dict[Path, Path]) -> None:
        shutil.rmtree(next(iter(names)).parent)
        commit(names)

    monkeypatch.setattr(checkpoints, "commit", deleting)
    line = shell.failed(COMMAND)
    assert "run/checkpoints/.step-" in line
    assert "was deleted while it was in use; give the same command again" in line


def deleted_after_step_two(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Delete what has this name in the run's folder, while no thread writes a checkpoint there."""
    record, begin, deleted = RunFolder.record, Saver.save, list[Path]()

    def save_whole(saver: Saver, checkpoint: Checkpoint) -> None:
        begin(saver, checkpoint)
        saver.wait()

    def deleting(folder: RunFolder, line: Mapping[str, object]) -> None:
        if line["step"] == 2 and not deleted:
            deleted.append(folder.path / name)
            shutil.rmtree(folder.path / name)
        record(folder, line)

    monkeypatch.setattr(Saver, "save", save_whole)
    monkeypatch.setattr(RunFolder, "record", deleting)
