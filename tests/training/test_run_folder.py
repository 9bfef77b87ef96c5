from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from bertsmith.core.errors import DiskError, RunFolderError
from bertsmith.core.files import write_json
from bertsmith.core.signals import Interrupted, Terminated
from bertsmith.recipes.pretrain.config import PretrainSettings
from bertsmith.training.config import ScheduleConfig
from bertsmith.training.run_folder import RUN_FORMAT, RunFolder, read_record, write_record


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    other = RunFolder(tmp_path / "run").owned()
    with folder.owned(), pytest.raises(RunFolderError, match="in use by process"):
        other.__enter__()
    with RunFolder(tmp_path / "run").owned():
        pass
    # left by a process that was killed, whose record was longer
    with folder.owned():
        (lock,) = (tmp_path / "run").iterdir()
        record = json.loads(lock.read_bytes())
    folder.path.mkdir(exist_ok=True)
    lock.write_text(json.dumps(record | {"since": 99 * "x"}), encoding="utf-8")
    with folder.owned(), pytest.raises(RunFolderError, match=f"in use by process {os.getpid()} "):
        RunFolder(tmp_path / "run").owned().__enter__()


def test_claim_and_go_on(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    settings = ScheduleConfig(warmup=0.2)
    assert not folder.claim("pretrain", settings)
    assert folder.claim("pretrain", settings)
    assert folder.settings("pretrain") == settings.to_dict()
    with pytest.raises(RunFolderError, match=r"warmup was 0.2, now 0.3"):
        folder.claim("pretrain", ScheduleConfig(warmup=0.3))
    with pytest.raises(RunFolderError, match="bertsmith pretrain"):
        folder.claim("finetune", settings)


def test_a_full_disk_names_the_checkpoint_of_the_largest_step(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    RunFolder(tmp_path).claim("pretrain", ScheduleConfig())
    for step in (99_999_999, 100_000_000):
        (folder.checkpoints / f"step-{step:08d}").mkdir(parents=True)
    refusal = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskError, match=r"resumes from step-100000000$"), folder.owned():
        raise refusal


def test_an_empty_run_is_removed_by_who_began_it_alone(tmp_path: Path) -> None:
    def interrupted(folder: RunFolder) -> None:
        with suppress(KeyboardInterrupt), folder.owned():
            resumed.append(folder.claim("pretrain", ScheduleConfig()))
            raise KeyboardInterrupt

    resumed: list[bool] = []
    folder = RunFolder(tmp_path / "run")
    interrupted(folder)
    assert not folder.path.exists()
    # one process is killed right after it began, another goes on and is interrupted
    folder.path.mkdir()
    RunFolder(folder.path).claim("pretrain", ScheduleConfig())
    identity = folder.identity
    interrupted(RunFolder(folder.path))
    assert RunFolder(folder.path).identity == identity
    assert resumed == [False, True]


@pytest.mark.parametrize(
    ("interruption", "said"),
    [
        (KeyboardInterrupt(), "interrupted; give the same command again: it resumes from step-"),
        (Terminated(), "terminated; give the same command again: it resumes from step-"),
        (Interrupted("stopped after step 7, saved"), "stopped after step 7, saved"),
    ],
)
def test_an_interruption_that_leaves_a_run_says_how_to_go_on(
    tmp_path: Path, interruption: KeyboardInterrupt, said: str
) -> None:
    """A second Ctrl-C ends training at once, and one after it ends what follows."""
    folder = RunFolder(tmp_path / "run")

    def train() -> None:
        with folder.owned():
            folder.claim("pretrain", ScheduleConfig())
            (folder.checkpoints / "step-00000007").mkdir(parents=True)
            (folder.checkpoints / "step-00000007" / "state.json").write_bytes(b"{}")
            raise interruption

    with pytest.raises(KeyboardInterrupt) as ended:
        train()
    assert str(ended.value).startswith(said)
    assert isinstance(ended.value, Interrupted) == isinstance(interruption, Interrupted)


@pytest.mark.parametrize(
    ("found", "version"),
    [
        (None, "an earlier"),
        (1, "an earlier"),
        (2, "an earlier"),
        (RUN_FORMAT + 1, "a later"),
        ("x", "an earlier"),
    ],
)
def test_a_run_of_another_version_is_refused_and_can_be_read(
    tmp_path: Path, found: object, version: str
) -> None:
    folder, settings = RunFolder(tmp_path), ScheduleConfig(warmup=0.2)
    folder.claim("pretrain", settings)
    content = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert content.pop("format") == RUN_FORMAT
    if found is not None:
        content["format"] = found
    write_json(tmp_path / "run.json", content)
    before = (tmp_path / "run.json").read_bytes()
    refused = rf"run.json: .* {version} version of bertsmith began.*; choose another --out"
    with pytest.raises(RunFolderError, match=refused):
        folder.claim("pretrain", settings)
    with pytest.raises(RunFolderError, match=refused), folder.owned():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert (tmp_path / "run.json").read_bytes() == before
    assert folder.settings("pretrain") == settings.to_dict()


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"thesis.txt.*empty or new"):
        RunFolder(tmp_path).claim("pretrain", ScheduleConfig())
    with (
        pytest.raises(RunFolderError, match="is a file"),
        RunFolder(tmp_path / "thesis.txt").owned(),
    ):
        pass


def test_what_a_process_killed_at_its_beginning_leaves_is_no_obstacle(tmp_path: Path) -> None:
    for name in (".lock", "run.json.partial"):
        (tmp_path / name).write_text("{", encoding="utf-8")
    folder = RunFolder(tmp_path)
    with folder.owned():
        assert not folder.claim("pretrain", ScheduleConfig())
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("content", ["{", "[]", '{"kind": 3}', "null", "", "\0"])
def test_a_damaged_run_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunFolderError, match="is damaged"):
        RunFolder(tmp_path).settings("pretrain")


def test_the_log_survives_a_cut_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.log() == []
    folder.record({"step": 1, "seconds": 0.5})
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"step": 2, "lo')
    assert folder.log() == [{"step": 1, "seconds": 0.5}]


@pytest.mark.parametrize(
    "line",
    [
        b"[]", b"null", b"3", b'{"step": "1", "seconds": 1}', b'{"step": 1}', b"\xff\x00\x00",
        b'{"step": NaN, "seconds": 1}', b'{"step": 1, "seconds": 1, "loss": null}', b"[" * 9000,
        b'{"step": 1, "seconds": 1, "loss": ' + b"9" * 5000 + b"}", b'{"step": true, "seconds": 1}',
        b'{"step": 1, "seconds": 1, "loss": ' + b"9" * 400 + b"}", b"x" * 3_000_000,
    ],
)  # fmt: skip
def test_damaged_lines_of_the_log_are_passed_over(tmp_path: Path, line: bytes) -> None:
    folder = RunFolder(tmp_path)
    entries = [{"step": 1, "seconds": 0.5}, {"step": 2, "seconds": 1.5, "loss": 2.0}]
    folder.record(entries[0])
    with (tmp_path / "log.jsonl").open("ab") as log:
        log.write(line + b"\n")
    folder.record(entries[1])
    assert folder.log() == entries


def test_a_log_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(
        RunFolderError,
        match=r"log.jsonl: cannot be read: is not a regular file; "
        r"del",
    ):
        RunFolder(tmp_path).log()


def test_runs_have_identities_and_copies_keep_them(tmp_path: Path) -> None:
    one, other = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "other")
    for folder in (one, other):
        folder.path.mkdir()
        assert folder.identity == ""
        folder.claim("pretrain", ScheduleConfig(warmup=0.2))
    assert one.identity != other.identity
    shutil.copytree(one.path, tmp_path / "copy")
    assert RunFolder(tmp_path / "copy").identity == one.identity
    seeds = [RunFolder(one.path / "seeds" / f"seed-{seed}", part_of=one) for seed in (0, 1)]
    assert [seed.identity for seed in seeds] == [f"{one.identity}/seeds/seed-{n}" for n in (0, 1)]
    one.claim("pretrain", ScheduleConfig(warmup=0.2))
    assert one.identity == RunFolder(tmp_path / "copy").identity


def test_a_run_whose_settings_may_change_keeps_its_identity(tmp_path: Path) -> None:
    """With another one, its own checkpoints would be those of another run."""
    folder = RunFolder(tmp_path)
    folder.claim("pretrain", PretrainSettings(log_every=5))
    identity = folder.identity
    assert folder.claim("pretrain", PretrainSettings(log_every=7))
    assert folder.settings("pretrain") == PretrainSettings(log_every=7).to_dict()
    assert folder.identity == identity


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[1]", b"null", b"\xff", b"\0" * 100, b'{"a": NaN}', b'{"a": 1}',
        b'{"sha256": 3, "a": 1}',
    ],
)  # fmt: skip
def test_damaged_records_are_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "result.json"
    write_record(path, {"a": [1, 2.5, float("nan")], "b": {"1": None}})
    assert list(read_record(path)) == ["a", "b"]
    path.write_bytes(content)
    with pytest.raises(RunFolderError, match=r"^[^\n]*result.json: is damaged: [^\n]*; delete it"):
        read_record(path)


def test_an_edited_record_is_told(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_record(path, {"a": 12})
    path.write_text(path.read_text(encoding="utf-8").replace("12", "13"), encoding="utf-8")
    with pytest.raises(RunFolderError, match="not what was written"):
        read_record(path)


def test_json_is_written_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": [1, 2]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"b": [1, 2]}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
