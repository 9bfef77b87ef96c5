from __future__ import annotations

import hashlib
import shutil
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.core.errors import DiskError
from bertsmith.core.files import writing as refused_as_disk_error
from bertsmith.training.checkpoints import Checkpoint, Checkpoints, State
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.state import Saver
from bertsmith.weights.tensors import write_tensors
from flushing import disk_events


def checkpoint(step: int, **state: object) -> Checkpoint:
    tensors = {"a": torch.full((7, 13), float(step))}
    return Checkpoint(state=State(step=step).override(**state), weights=tensors, optimiser=tensors)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_librarys_own_reader_finds_the_same_tensors(tmp_path: Path, kind: torch.dtype) -> None:
    tensors = {
        "z": torch.randn(13, 7).to(kind).T,  # not contiguous
        "scalar": torch.tensor(3.0),
        "empty": torch.zeros(0, 5),
        "numbers": torch.arange(11),
        "unicode é": torch.tensor([True, False, True]),
    }
    path = tmp_path / "a.safetensors"
    record = write_tensors(path, tensors)
    assert record.bytes == path.stat().st_size
    assert record.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    found = load_file(path)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
    # the order in which tensors are given does not show
    turned = dict(reversed([*found.items()]))
    assert write_tensors(tmp_path / "b.safetensors", turned) == record
    save_file({n: t.contiguous() for n, t in tensors.items()}, tmp_path / "c.safetensors")
    theirs = load_file(tmp_path / "c.safetensors")
    assert all(torch.equal(theirs[name], found[name]) for name in theirs)


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    best = [None, 3, 3, 3, 9, 9, 9]
    for step, best_step in zip((1, 3, 5, 7, 9, 11, 13), best, strict=True):
        checkpoints.save(checkpoint(step, best_step=best_step))
        kept = {int(path.name.removeprefix("step-")) for path in tmp_path.iterdir()}
        newest = [number for number in (1, 3, 5, 7, 9, 11, 13) if number <= step][-2:]
        assert kept == {*newest, best_step} - {None}


def test_step_0_is_no_best_one(tmp_path: Path) -> None:
    """Stopped before its first step, a run without held-out text kept that checkpoint for ever."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (0, 3, 5):
        checkpoints.save(checkpoint(step))
    assert {path.name for path in tmp_path.iterdir()} == {"step-00000003", "step-00000005"}


def test_a_step_of_nine_digits_is_newer_than_one_of_eight(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in (99_999_999, 100_000_000):
        checkpoints.save(checkpoint(step))
    found = Checkpoints(tmp_path).load()
    assert found is not None
    assert found.state.step == 100_000_000


def test_what_was_found_damaged_is_no_reason_to_prune_what_is_whole(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (3, 5, 8):
        checkpoints.save(checkpoint(step))
    (tmp_path / "step-00000008" / "state.json").write_text("{}")
    checkpoints = Checkpoints(tmp_path, keep=2)
    found = checkpoints.load()
    assert found is not None
    assert found.state.step == 5
    checkpoints.save(checkpoint(6))
    assert {path.name for path in tmp_path.iterdir()} == {"step-00000005", "step-00000006"}


def test_a_checkpoint_in_the_place_of_a_damaged_one_stays(tmp_path: Path) -> None:
    for step in (3, 5):
        Checkpoints(tmp_path).save(checkpoint(step))
    (tmp_path / "step-00000005" / "state.json").write_text("{}")
    checkpoints = Checkpoints(tmp_path)
    checkpoints.load()
    checkpoints.save(checkpoint(5))
    found = Checkpoints(tmp_path).load()
    assert found is not None
    assert found.state.step == 5


def test_a_checkpoint_loses_its_name_before_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of one must not be taken for a whole."""

    def killed(folder: Path, **_: object) -> None:
        for path in folder.glob("weights*"):
            path.unlink()

    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(checkpoint(3))
    monkeypatch.setattr(shutil, "rmtree", killed)
    checkpoints.save(checkpoint(5))
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000005"]


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    for name in (".step-00000004.partial", ".step-00000002.pruned"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights.safetensors").write_bytes(b"half")
    (tmp_path / "step-notes").mkdir()
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.load() is None
    checkpoints.save(checkpoint(4))
    assert {path.name for path in tmp_path.iterdir()} == {"step-00000004", "step-notes"}


def test_a_resumed_run_ends_what_pruning_had_begun(tmp_path: Path) -> None:
    for step in (3, 5, 8):
        Checkpoints(tmp_path, keep=9).save(checkpoint(step))
    (tmp_path / ".step-00000002.pruned").mkdir()
    checkpoints = Checkpoints(tmp_path, keep=2)
    found = checkpoints.load()
    assert found is not None
    assert len([*tmp_path.iterdir()]) == 4
    checkpoints.tidy(found.state)
    assert {path.name for path in tmp_path.iterdir()} == {"step-00000005", "step-00000008"}


class Held(Checkpoints):
    """Checkpoints that are written when they are let."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.let, self.began = threading.Semaphore(0), threading.Semaphore(0)
        self.in_hand = 0

    def save(self, checkpoint: Checkpoint) -> Path:
        self.in_hand += 1
        assert self.in_hand == 1
        self.began.release()
        assert self.let.acquire(timeout=300)
        self.in_hand -= 1
        return super().save(checkpoint)


def test_what_is_saved_is_what_was_there_when_saving_began(tmp_path: Path) -> None:
    held = Held(tmp_path)
    first = checkpoint(1)
    with closing(Saver(RunFolder(tmp_path), held)) as saver:
        saver.save(first)
        assert held.began.acquire(timeout=300)
        first.weights["a"].fill_(99)  # training goes on meanwhile
        saver.check()
        held.let.release()
        held.let.release()
        saver.save(checkpoint(2))
        saver.save(checkpoint(2))  # is in hand already
        saver.wait()
        assert not held.let.acquire(blocking=False)
    (path,) = tmp_path.glob("step-00000001/weights.safetensors")
    assert np.unique(load_file(path)["a"].numpy()).tolist() == [1.0]


class Refusing(Checkpoints):
    def save(self, checkpoint: Checkpoint) -> Path:
        with refused_as_disk_error(self.folder):
            raise OSError(28, "No space left on device")


def test_what_goes_wrong_is_raised_by_the_next_call(tmp_path: Path) -> None:
    with closing(Saver(RunFolder(tmp_path), Refusing(tmp_path))) as saver:
        for ask in (saver.wait, lambda: saver.save(checkpoint(2))):
            saver.save(checkpoint(1))
            with pytest.raises(DiskError, match="No space left"):
                ask()
            saver.mark_saved(0)
        saver.check()


def test_a_checkpoint_has_its_name_once_all_of_it_and_the_log_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure it is whole, or was never there."""
    events, folder = disk_events(monkeypatch), RunFolder(tmp_path)
    folder.record({"step": 4, "seconds": 1.0})
    with closing(Saver(folder, Checkpoints(folder.checkpoints))) as saver:
        saver.save(checkpoint(4))
        saver.wait()
    final = folder.checkpoints / "step-00000004"
    partial = final.with_name(f".{final.name}.partial")
    files = {partial / path.name for path in final.iterdir()}
    assert len(files) == 5
    needed = {*files, partial, tmp_path, tmp_path / "log.jsonl"}
    assert needed <= {path for _, path in events[: events.index(("named", final))]}
    assert events[-1] == ("flushed", folder.checkpoints)
