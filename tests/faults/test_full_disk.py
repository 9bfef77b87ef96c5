"""A disk that takes no more: what was whole stays, nothing else does, and the line says what next.

A limit on the size of files stands in for the full disk: the same calls fail, with another number.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

from bertsmith.errors import DiskError
from bertsmith.training.checkpoints import Checkpoint, State, load_checkpoint, save_checkpoint
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Budget
from faults.shell import Shell, everything

Limited = Callable[[int], AbstractContextManager[None]]

REFUSED = "cannot be written: File too large; allow larger files (ulimit -f)"
PRETRAIN = (
    "--model tiny --steps 2 --samples.longest 32 --samples.tokens_per_batch 320 --log_every 1"
)


@pytest.mark.parametrize("size", [0, 300])
def test_a_vocabulary(shell: Shell, limited: Limited, size: int) -> None:
    Path("a.txt").write_text("gabo dela kuri moti.\n" * 9, encoding="utf-8")
    with limited(size):
        line = shell.refused("vocab learn a.txt --out below/vocab --size 100")
    assert line == f"bertsmith: below/vocab: {REFUSED}, or write elsewhere with --out"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("size", [100, 3000, 20_000])
def test_a_store(shell: Shell, limited: Limited, workers: int, size: int) -> None:
    documents = (f"gabo dela {n} kuri. " * 400 for n in range(10))
    Path("a.txt").write_text("\n\n".join(documents), encoding="utf-8")
    with limited(size):
        line = shell.refused(f"prepare a.txt --vocab {{vocab}} --out below/it --workers {workers}")
    assert line == f"bertsmith: below/it: {REFUSED}, or write elsewhere with --out"


def test_a_run_whose_first_file_does_not_fit(shell: Shell, limited: Limited) -> None:
    with limited(0):
        line = shell.refused(f"pretrain {{store}} --out below/run {PRETRAIN}")
    assert line.startswith(f"bertsmith: below/run/run.json: {REFUSED}, then give the same command")


def test_pretraining_goes_on_with_the_same_command(shell: Shell, limited: Limited) -> None:
    command = f"pretrain {{store}} --out run {PRETRAIN}"
    with limited(100_000):
        line = shell.failed(command)
    assert line == (
        f"bertsmith: run/checkpoints: {REFUSED}, "
        "then give the same command again: it goes on with what is saved"
    )
    begun = {"run.json", "preflight.json", "log.jsonl", "checkpoints"}
    assert set(everything()) == {"run", *(f"run/{name}" for name in begun)}
    assert shell.run(command)[0] == 0
    assert Path("run/model/model.safetensors").exists()


def test_a_log_that_does_not_fit(shell: Shell, limited: Limited) -> None:
    folder = RunFolder(Path("run"))
    folder.path.mkdir()
    folder.record({"step": 1, "loss": 4.0})
    with limited(30), pytest.raises(DiskError, match=r"run/log\.jsonl"):
        folder.record({"step": 2, "loss": 3.0})
    folder.record({"step": 2, "loss": 3.0})
    assert [line["step"] for line in folder.log()] == [1, 2]


def test_the_last_whole_checkpoint_stays(shell: Shell, limited: Limited) -> None:
    def checkpoint(step: int) -> Checkpoint:
        weights = {"a": torch.full((50_000,), step)}
        return Checkpoint(state=State(step=step), weights=weights, optimiser=weights)

    folder = RunFolder(Path("run"))
    with pytest.raises(DiskError) as raised, folder.owned():  # noqa: PT012
        folder.claim("pretrain", Budget(steps=9))
        save_checkpoint(folder.checkpoints, checkpoint(3))
        with limited(100_000):
            save_checkpoint(folder.checkpoints, checkpoint(5))
    assert str(raised.value) == (
        f"run/checkpoints: {REFUSED}, "
        "then give the same command again: it goes on from step-00000003"
    )
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step-00000003"]
    assert not (folder.path / ".lock").exists()
    found = load_checkpoint(folder.checkpoints)
    assert found is not None
    assert found.state.step == 3


@pytest.mark.parametrize("size", [10, 900, 30_000])
def test_finetuning_goes_on_with_the_same_command(
    shell: Shell, limited: Limited, size: int
) -> None:
    rows = (f"{'ab'[n % 2]}\tgabo {n}\n" for n in range(20))
    Path("a.tsv").write_text("label\ttext\n" + "".join(rows), encoding="utf-8")
    command = "finetune {model} a.tsv --out run --seeds 1 --epochs 1"
    with limited(size):
        line = shell.failed(command)
    assert REFUSED in line
    assert "then give the same command again" in line
    assert not [name for name in everything() if "partial" in name or "saving" in name]
    assert Path("run/run.json").exists() == (size > 10)
    assert shell.run(command)[0] == 0
    assert Path("run/model/model.safetensors").exists()


def test_answers_that_nobody_can_keep(shared: dict[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bertsmith.cli", "predict", shared["classifier"]],
            input="gabo\n" * 3,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == (
        "bertsmith: standard output: cannot be written: No space left on device; "
        "make room, then give the same command again\n"
    )
