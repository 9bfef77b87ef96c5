from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertsmith.errors import RunFolderError
from bertsmith.training.run_folder import RunFolder, write_json
from bertsmith.training.schedule import ScheduleConfig


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    other = RunFolder(tmp_path / "run").owned()
    with folder.owned(), pytest.raises(RunFolderError, match="in use by process"):
        other.__enter__()
    with RunFolder(tmp_path / "run").owned():
        pass


def test_claim_and_go_on(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    settings = ScheduleConfig(warm_up=0.2)
    assert not folder.claim("pretrain", settings)
    assert folder.claim("pretrain", settings)
    assert folder.settings("pretrain") == settings.to_dict()
    with pytest.raises(RunFolderError, match=r"warm_up was 0.2, now 0.3"):
        folder.claim("pretrain", ScheduleConfig(warm_up=0.3))
    with pytest.raises(RunFolderError, match="bertsmith pretrain"):
        folder.claim("finetune", settings)


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"thesis.txt.*empty or new"):
        RunFolder(tmp_path).claim("pretrain", ScheduleConfig())
    with (
        pytest.raises(RunFolderError, match="is a file"),
        RunFolder(tmp_path / "thesis.txt").owned(),
    ):
        pass


@pytest.mark.parametrize("content", ["{", "[]", '{"kind": 3}', "null"])
def test_a_damaged_run_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunFolderError, match="is damaged"):
        RunFolder(tmp_path).settings("pretrain")


def test_the_log_survives_a_cut_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.log() == []
    folder.record({"step": 1})
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"step": 2, "lo')
    assert folder.log() == [{"step": 1}]


def test_json_is_written_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": [1, 2]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"b": [1, 2]}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
