"""Two commands and one output: the second ends in one line; what a killed one left is swept."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest

from bertsmith.cli.commands import COMMANDS as VERBS
from bertsmith.core.errors import DiskError, OutputTaken
from bertsmith.core.ownership import claimed, claimed_output, new_folder, staging_folder
from faults.shell import Shell, everything

HOLD = """
import os, sys
from pathlib import Path
from bertsmith.core.ownership import claimed, temporary_path
out = Path(sys.argv[1])
with claimed(out):
    temporary_path(out).write_text("half")
    temporary_path(out, "staging").mkdir()
    print("mine", flush=True)
    sys.stdin.read()
    temporary_path(out).unlink()
    temporary_path(out, "staging").rmdir()
"""


@contextmanager
def writer(out: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that is writing an output."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    try:
        yield process
    finally:
        process.communicate()


COMMANDS = {
    "embed": "embed {model} texts.txt --out out.npy",
    "embed words": "embed {model} texts.txt --out out.parquet --pool word-mean",
    "convert": "convert {model} out --to tensorflow",
    "vocab learn": "vocab learn texts.txt --out out --size 60",
    "vocab extend": "vocab extend {model} texts.txt --add 1 --out out",
    "inspect": "inspect {model} texts.txt --out out.html",
    "explain": "explain {model} texts.txt --out out.html",
    "distil": "distil {model} {store} --method static --student 8 --out out",
    "quantize": "quantize {classifier} --calibrate texts.txt --out out",
    "export": "export {classifier} --to torch-export --out out",
    "glue": "glue {model} --data glue --out out",
    "demo": "demo --out out --minutes 0.1",
}


@pytest.fixture(scope="module")
def inputs() -> dict[str, str]:
    return {"texts.txt": "gabo dela kuri.\n" * 20}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_second_ends_in_one_line(shell: Shell, inputs: dict[str, str], command: str) -> None:
    for name, text in inputs.items():
        Path(name).write_text(text, encoding="utf-8")
    Path("glue/RTE").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        Path(f"glue/RTE/{split}.tsv").write_text(
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n", encoding="utf-8"
        )
    words = command.split()
    out = Path(words[words.index("--out") + 1] if "--out" in words else "out")
    with writer(out) as process:
        line = shell.refused(command)
        assert line.startswith(
            f"bertsmith: {out}: is in use by process {process.pid} on {platform.node()} since 20"
        )
        assert line.endswith("; wait for it, stop it, or choose another --out")


def test_every_verb_that_writes_is_tried() -> None:
    """The others own a folder that they go on with (test_owners, store/test_unfinished)."""
    writing = {
        name
        for name, command in VERBS.items()
        if any(option.name == "out" for option in fields(command.config))
    }
    commands = tuple(COMMANDS.values())
    tried = {name for name in writing if any(each.startswith(f"{name} ") for each in commands)}
    assert writing - tried == {"prepare", "pretrain", "finetune"}


def test_a_writer_that_was_killed_is_swept(shell: Shell, inputs: dict[str, str]) -> None:
    Path("texts.txt").write_text(inputs["texts.txt"], encoding="utf-8")
    with writer(Path("out.npy")) as process:
        process.kill()
        process.wait()
    assert len(everything()) == 4
    assert shell.run(COMMANDS["embed"])[0] == 0
    assert set(everything()) == {"texts.txt", "out.npy"}


def test_what_is_a_users_is_left_alone(tmp_path: Path) -> None:
    users = [
        ".out.partial", ".out.partial-", ".out.partial-1x", ".out.partial-1.txt", "out.partial-1",
        ".other.partial-1", ".out.npy.partial-1", ".out.draft-1",
    ]  # fmt: skip
    for name in users:
        (tmp_path / name).write_text("mine", encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.txt").touch()
    (tmp_path / ".out.partial-7").symlink_to(elsewhere)
    (tmp_path / ".out.staging-8").mkdir()
    with claimed(tmp_path / "out"):
        found = {path.name for path in tmp_path.iterdir()}
        assert found == {*users, "elsewhere", ".out.lock"}
    assert (elsewhere / "thesis.txt").exists()
    assert (tmp_path / "elsewhere").is_dir()


@pytest.mark.parametrize("kind", ["text", "link", "folder", "pipe"])
def test_what_has_the_name_of_the_lock_and_is_none(tmp_path: Path, kind: str) -> None:
    lock, kept = tmp_path / ".out.lock", tmp_path / "kept"
    kept.write_text("my notes", encoding="utf-8")
    if kind == "text":
        lock.write_text("my notes", encoding="utf-8")
    elif kind == "link":
        lock.symlink_to(kept)
    elif kind == "folder":
        lock.mkdir()
    else:
        os.mkfifo(lock)
    with pytest.raises(DiskError, match="is not a lock of bertsmith; move it away"):
        claimed(tmp_path / "out").__enter__()
    assert lock.exists()
    assert kept.read_text(encoding="utf-8") == "my notes"


def test_a_lock_that_cannot_be_made_is_not_what_the_message_names(tmp_path: Path) -> None:
    """As in a folder that is read-only, the name of the lock is refused: it is too long."""
    out = tmp_path / ("n" * 252)
    with pytest.raises(DiskError, match=f"^{out}: cannot be written: File name too long; choose"):
        claimed_output(out).__enter__()
    assert not list(tmp_path.iterdir())


def test_a_temporary_that_is_deleted_is_not_what_the_message_names(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def made() -> None:
        with new_folder(out) as fresh:
            fresh.rmdir()
            (fresh / "file").touch()

    with pytest.raises(DiskError, match=f"^{out}: was deleted while it was being written; give"):
        made()
    assert not list(tmp_path.iterdir())


def test_a_process_goes_on_holding_what_it_holds(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with new_folder(out) as fresh, staging_folder(out), claimed(tmp_path / "x" / ".." / "out"):
        (fresh / "file").touch()
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    with writer(out), pytest.raises(OutputTaken):
        claimed(out).__enter__()


def test_a_folder_that_comes_to_be_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def made_by_two() -> None:
        with new_folder(out):
            out.mkdir()
            (out / "thesis.txt").touch()

    with pytest.raises(
        DiskError, match=r"out: cannot be written: .*not empty; choose another name"
    ):
        made_by_two()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "out", "out/thesis.txt",
    ]  # fmt: skip


def test_a_half_written_record_of_a_killed_run_is_swept(shell: Shell) -> None:
    command = "pretrain {store} --out run --model tiny --steps 1 --tokens-per-batch 320"
    assert shell.run(command)[0] == 0
    left, mine = Path("run/preflight.json.partial"), Path("run/mine.json.partial")
    for path in (left, mine):
        path.write_text(json.dumps({}), encoding="utf-8")
    assert shell.run(command)[0] == 0
    assert not left.exists()
    assert mine.exists()
