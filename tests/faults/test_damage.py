"""Damaged files: each flipped bit, cut, lost or exchanged file is found before anything is used."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bertsmith.core.errors import RunFolderError, StoreError
from bertsmith.store.store import TokenStore, verify_store
from bertsmith.training.checkpoints import Checkpoint, Checkpoints, State
from faults.shell import Shell

FEW = 60
MANY = 1000


def checkpoint(step: int) -> Checkpoint:
    tensors = {
        "a": torch.randn(70, 30),
        "b": torch.randn(11).bfloat16(),
        "c/step": torch.tensor(float(step)),
    }
    return Checkpoint(
        state=State(step=step, seconds=step / 3),
        weights=tensors,
        optimiser=tensors,
        memory={"norms": [0.25, step / 7], "log_bytes": 99},
    )


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    for step in (3, 5, 8):
        checkpoints.save(checkpoint(step))
    return checkpoints


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def flip(path: Path, chance: random.Random) -> Callable[[], None]:
    """Turn one bit over; returns what turns it back."""
    content = path.read_bytes()
    bit = chance.randrange(8 * len(content))
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    return lambda: (path.write_bytes(content), None)[1]


def found_past(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is told of a damaged file of the newest checkpoint; the one before is taken."""
    found = Checkpoints(path.parents[1]).load()
    assert found is not None
    assert found.state == checkpoint(5).state
    (line,) = capsys.readouterr().err.splitlines()
    return line


def check_flips(count: int, saved: Checkpoints, capsys: pytest.CaptureFixture[str]) -> None:
    chance, newest = random.Random(count), files(saved.folder / "step-00000008")
    assert len(newest) == 5
    for number in range(count):
        path = newest[number % 5]
        mend = flip(path, chance)
        line = found_past(path, capsys)
        assert line.startswith(f"{path}: ")
        assert line.endswith("; skipped")
        mend()
    found = Checkpoints(saved.folder).load()
    assert found is not None
    assert found.state.step == 8


def test_flipped_bits_in_checkpoints(
    saved: Checkpoints, capsys: pytest.CaptureFixture[str]
) -> None:
    check_flips(FEW, saved, capsys)


@pytest.mark.faults
def test_a_thousand_flipped_bits_in_checkpoints(
    saved: Checkpoints, capsys: pytest.CaptureFixture[str]
) -> None:
    check_flips(MANY, saved, capsys)


@pytest.mark.parametrize("share", [0, 0.5, 0.99, None])
def test_files_of_checkpoints_that_are_cut_or_lost(
    saved: Checkpoints, capsys: pytest.CaptureFixture[str], share: float | None
) -> None:
    for path in files(saved.folder / "step-00000008"):
        content = path.read_bytes()
        if share is None:
            path.unlink()
        else:
            path.write_bytes(content[: int(share * len(content))])
        assert str(path) in found_past(path, capsys)
        path.write_bytes(content)


def test_files_exchanged_between_checkpoints(
    saved: Checkpoints, capsys: pytest.CaptureFixture[str]
) -> None:
    newest, oldest = saved.folder / "step-00000008", saved.folder / "step-00000003"
    for path in files(newest):
        content = path.read_bytes()
        path.write_bytes((oldest / path.name).read_bytes())
        assert str(newest) in found_past(path, capsys)
        path.write_bytes(content)
    shutil.rmtree(newest)
    shutil.copytree(oldest, newest)
    assert "step-00000008: holds the checkpoint of step 3" in found_past(path, capsys)
    (newest / "weights.safetensors").replace(newest / "x")
    (newest / "optimiser.safetensors").replace(newest / "weights.safetensors")
    (newest / "x").replace(newest / "optimiser.safetensors")
    assert "; skipped" in found_past(path, capsys)


def test_no_checkpoint_is_whole(saved: Checkpoints, capsys: pytest.CaptureFixture[str]) -> None:
    for path in saved.folder.glob("*/state.json"):
        path.write_text("{}")
    with pytest.raises(RunFolderError, match="no checkpoint is complete; start again"):
        Checkpoints(saved.folder).load()
    assert capsys.readouterr().err.count("; skipped") == 3


@pytest.fixture
def store(shared: dict[str, str], tmp_path: Path) -> Path:
    shutil.copytree(shared["store"], tmp_path / "store")
    return tmp_path / "store"


def refused(store: Path) -> StoreError:
    with pytest.raises(StoreError) as error:
        verify_store(TokenStore(store), {})
    assert "\n" not in str(error.value)
    return error.value


def check_store_flips(count: int, store: Path) -> None:
    chance, everything = random.Random(count), files(store)
    held_out = [path for path in everything if "held-out" in path.parts]
    assert 0 < len(held_out) < len(everything)
    for number in range(count):
        path = everything[number % len(everything)]
        mend = flip(path, chance)
        assert str(refused(store).where) == str(path)
        mend()
    verify_store(TokenStore(store), {})


def test_flipped_bits_in_a_store(store: Path) -> None:
    check_store_flips(FEW, store)


@pytest.mark.faults
def test_a_thousand_flipped_bits_in_a_store(store: Path) -> None:
    check_store_flips(MANY, store)


@pytest.mark.parametrize("share", [0, 0.5, 0.99, None])
def test_files_of_a_store_that_are_cut_or_lost(store: Path, share: float | None) -> None:
    for path in files(store):
        content = path.read_bytes()
        if share is None:
            path.unlink()
        else:
            path.write_bytes(content[: int(share * len(content))])
        # the folder is named where store.json itself is gone
        assert str(refused(store).where) in (str(path), str(path.parent))
        path.write_bytes(content)


def test_files_exchanged_between_stores(store: Path, shared: dict[str, str]) -> None:
    """The held-out store is a whole one: put in the place of the other it is still found out."""
    for path in files(store):
        other = Path(shared["store"], "held-out", path.name)
        if path.parent == store and other.is_file():
            content = path.read_bytes()
            path.write_bytes(other.read_bytes())
            assert str(store) in str(refused(store).where)
            path.write_bytes(content)
    shutil.rmtree(store / "held-out")
    shutil.copytree(store, store.with_name("copy"))
    store.with_name("copy").rename(store / "held-out")
    assert refused(store).where == store / "held-out" / "store.json"


def test_a_run_on_a_damaged_store_never_begins(shell: Shell, store: Path) -> None:
    command = f"pretrain {store} --out run --model tiny --steps 2 --tokens-per-batch 320"
    tokens = store / "tokens-00000.bin"
    mend = flip(tokens, random.Random(1))
    line = shell.refused(command)
    assert line == (
        f"bertsmith: {tokens}: is damaged: it is not what was written; "
        "run `bertsmith prepare` again"
    )
    mend()
    assert shell.run(command)[0] == 0
    # what was checked is checked again only when it has changed since
    seen = Path("run/verified.json").read_text(encoding="utf-8")
    assert re.search(rf'"{tokens}": \[\s*\d+,\s*\d+\s*\]', seen)
    flip(tokens, random.Random(1))
    assert str(tokens) in shell.failed("pretrain --out run", lines=1)
