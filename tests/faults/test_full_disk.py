"""A disk that takes no more: what was whole stays, nothing else does, and the line says what next.

A limit on the size of files stands in for the full disk: the same calls fail, with another number.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

from bertsmith.core.errors import DiskError
from bertsmith.training.checkpoints import Checkpoint, Checkpoints, State
from bertsmith.training.config import Budget
from bertsmith.training.run_folder import RunFolder
from faults.shell import Shell, everything
from forking import run

Limited = Callable[[int], AbstractContextManager[None]]

REFUSED = "cannot be written: File too large; allow larger files (ulimit -f)"
PRETRAIN = "--model tiny --steps 2 --max-length 32 --tokens-per-batch 320 --log-every 1"


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


def test_a_store_goes_on_when_there_is_room(
    shell: Shell, limited: Limited, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = "\n\n".join(f"gabo dela {n} kuri. " * 40 for n in range(100))
    Path("a.txt").write_text(documents, encoding="utf-8")
    command = "prepare a.txt --vocab {vocab} --workers 1 --layout documents --out"
    assert shell.run(f"{command} whole")[0] == 0
    monkeypatch.setattr("bertsmith.text.corpus.sections.SECTION_BYTES", 4_000)
    monkeypatch.setattr("bertsmith.store.preparing.GROUP_BYTES", 4_000)
    told = []
    for size in (12_000, 20_000):
        with limited(size):
            line = shell.failed(f"{command} it")
        prefix = f"bertsmith: it: {REFUSED}, then give the same command again: it resumes at "
        assert line.startswith(prefix)
        told.append(int(line.removeprefix(prefix).removesuffix(" %")))
    assert 0 < told[0] < told[1] < 100
    status, said = shell.run(f"{command} it")
    assert status == 0
    assert said.startswith(f"resuming it.partial: {told[1]} % is done\n")
    files = [path.relative_to("whole") for path in Path("whole").rglob("*") if path.is_file()]
    assert all(Path("it", path).read_bytes() == Path("whole", path).read_bytes() for path in files)
    assert sorted(path.name for path in Path().iterdir()) == ["a.txt", "it", "whole"]


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
        "then give the same command again: it resumes with what is saved"
    )
    begun = {"run.json", "verified.json", "preflight.json", "log.jsonl", "checkpoints"}
    assert set(everything()) == {"run", *(f"run/{name}" for name in begun)}
    assert shell.run(command)[0] == 0
    assert Path("run/model/model.safetensors").exists()


def test_a_log_that_does_not_fit(shell: Shell, limited: Limited) -> None:
    folder = RunFolder(Path("run"))
    folder.path.mkdir()
    folder.record({"step": 1, "seconds": 1.0, "loss": 4.0})
    with limited(60), pytest.raises(DiskError, match=r"run/log\.jsonl"):
        folder.record({"step": 2, "seconds": 2.0, "loss": 3.0})
    folder.record({"step": 2, "seconds": 2.0, "loss": 3.0})
    assert [line["step"] for line in folder.log()] == [1, 2]


def checkpoint(step: int) -> Checkpoint:
    weights = {"a": torch.full((50_000,), step)}
    return Checkpoint(state=State(step=step), weights=weights, optimiser=weights)


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_the_last_whole_checkpoint_stays(shell: Shell, limited: Limited, share: float) -> None:
    folder = RunFolder(Path("run"))
    with pytest.raises(DiskError) as raised, folder.owned():  # noqa: PT012
        folder.claim("pretrain", Budget(steps=9))
        Checkpoints(folder.checkpoints).save(checkpoint(3))
        with limited(int(share * 400_000)):
            Checkpoints(folder.checkpoints).save(checkpoint(5))
    assert str(raised.value) == (
        f"run/checkpoints: {REFUSED}, "
        "then give the same command again: it resumes from step-00000003"
    )
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step-00000003"]
    assert not (folder.path / ".lock").exists()
    found = Checkpoints(folder.checkpoints).load()
    assert found is not None
    assert found.state.step == 3


class Disk:
    """A file system of its own, in memory."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def mount(self, options: str) -> None:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", str(self.place)],
            capture_output=True,
            check=False,
        )
        if done.returncode:
            pytest.skip("only root may mount a file system")

    @property
    def free(self) -> int:
        state = os.statvfs(self.place)
        return state.f_bavail * state.f_frsize


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk of 3 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    disk = Disk(place)
    if shutil.which("mount") is None:
        pytest.skip("there is no command to mount a file system")
    disk.mount("size=3m")
    try:
        yield disk
    finally:
        # lazily: tensors that were read from it may live for a moment longer
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_disk_that_is_full_part_of_the_way(disk: Disk, share: float) -> None:
    folder = RunFolder(disk.place / "run")
    with pytest.raises(DiskError) as raised, folder.owned():  # noqa: PT012
        folder.claim("pretrain", Budget(steps=9))
        before = disk.free
        checkpoints = Checkpoints(folder.checkpoints)
        checkpoints.save(checkpoint(3))
        needed = before - disk.free
        filler = bytes(disk.free - int(share * needed))
        (disk.place / "filler").write_bytes(filler)
        checkpoints.save(checkpoint(5))
    assert str(raised.value).endswith(
        "cannot be written: No space left on device; make room, "
        "then give the same command again: it resumes from step-00000003"
    )
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step-00000003"]
    found = Checkpoints(folder.checkpoints).load()
    assert found is not None
    assert found.state.step == 3
    (disk.place / "filler").unlink()
    checkpoints.save(checkpoint(5))


def test_a_disk_that_can_only_be_read(disk: Disk) -> None:
    folder = RunFolder(disk.place / "run")
    checkpoints = Checkpoints(folder.checkpoints)
    with folder.owned():
        folder.claim("pretrain", Budget(steps=9))
        checkpoints.save(checkpoint(3))
    disk.mount("remount,ro")
    with pytest.raises(DiskError, match="Read-only file system; make the file system writable"):
        checkpoints.save(checkpoint(5))
    found = Checkpoints(folder.checkpoints).load()
    assert found is not None
    assert found.state.step == 3
    with pytest.raises(DiskError, match="Read-only file system"), folder.owned():
        pass


def test_a_disk_that_fills_while_training_goes_on(shell: Shell, disk: Disk) -> None:
    """The error comes from the thread that saves, at the next step; nothing is lost but that."""
    disk.mount("remount,size=13m")
    command = (
        f"pretrain {{store}} --out {disk.place}/run {PRETRAIN} --checkpoint-minutes 1e-9 --force"
    )
    command = command.replace("--steps 2", "--steps 6")
    line = shell.failed(command)
    assert ": No space left on device; make room, then give the same command again" in line
    kept = sorted(path.name for path in Path(disk.place, "run/checkpoints").glob("step-*"))
    assert kept
    assert line.endswith(f": it resumes from {kept[-1]}")
    disk.mount("remount,size=99m")
    assert shell.run(command)[0] == 0
    steps = [entry["step"] for entry in RunFolder(disk.place / "run").log() if "rate" in entry]
    assert steps == [*range(1, 7)]


def test_finetuning_goes_on_with_the_same_command(shell: Shell, limited: Limited) -> None:
    rows = (f"{'ab'[n % 2]}\tgabo {n}\n" for n in range(20))
    Path("a.tsv").write_text("label\ttext\n" + "".join(rows), encoding="utf-8")
    command = "finetune {model} a.tsv --out run --seeds 1 --epochs 1"
    for size in (10, 4000, 30_000):
        with limited(size):
            line = shell.failed(command)
        assert REFUSED in line
        assert "then give the same command again" in line
        assert not [name for name in everything() if "partial" in name or "saving" in name]
        assert Path("run/run.json").exists() == (size > 10)
    assert shell.run(command)[0] == 0
    assert Path("run/model/model.safetensors").exists()


def test_answers_that_nobody_can_keep(shared: dict[str, str]) -> None:
    command = [sys.executable, "-m", "bertsmith", "predict", shared["classifier"]]
    with Path("/dev/full").open("w") as full:
        done = run(command, stdin="gabo\n" * 3, stdout=full)
    assert done.returncode == 2
    assert done.stderr == (
        "reading standard input: each line is a text\n"
        "bertsmith: standard output: cannot be written: No space left on device; "
        "make room, then give the same command again\n"
    )


# imports and pipes take files as well
IN_SHELL = ("bash", "-c", 'ulimit -n 12; exec "$0" -m bertsmith.cli.main "$@"', sys.executable)
FORKED = (
    *(sys.executable, "-c"),
    "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)); "
    "from bertsmith.cli.main import main; sys.exit(main())",
)
EMBED = "embed {model} a.txt --out it.npy"
PRETRAIN_A_STEP = "pretrain {store} --out it --steps 1 --workers 1 --model tiny"


@pytest.mark.parametrize(
    ("program", "command"),
    [
        (IN_SHELL, "prepare a.txt --vocab {vocab} --out it --workers 2"),
        pytest.param(IN_SHELL, PRETRAIN_A_STEP, marks=pytest.mark.faults),
        pytest.param(IN_SHELL, EMBED, marks=pytest.mark.faults),
        (FORKED, PRETRAIN_A_STEP),
        (FORKED, EMBED),
    ],
)
def test_few_files_may_be_open(
    shared: dict[str, str], tmp_path: Path, program: tuple[str, ...], command: str
) -> None:
    """It works, or a line says what to allow."""
    (tmp_path / "a.txt").write_text("gabo dela kuri.\n\nmoti.\n" * 9, encoding="utf-8")
    words = [word.format(**shared) for word in command.split()]
    done = run([*program, *words], cwd=tmp_path)
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].endswith("allow more open files (ulimit -n)")
