"""Names in a folder's records lead nowhere else, and what a folder names need not be a file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from bertsmith.core.errors import StoreError, UserError
from bertsmith.core.files import names_a_file_inside, read_bytes
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore, verify_store
from bertsmith.tokens.tokenizer import Tokenizer
from hostile.conftest import Opened
from hostile.files import SPECIAL
from hostile.test_hostile_folders import harmless
from invented import invented_documents


@pytest.fixture(scope="module")
def honest_store(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest") / "store"
    prepare_store(invented_documents(30), tokenizer, folder, held_out=0.2)
    return folder


@pytest.fixture
def store(honest_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest_store, tmp_path / "store"))


@pytest.mark.parametrize("way", ["../store", "inner/../../store", "./../work/../store"])
def test_a_store_is_found_by_a_path_that_leads_upwards(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    work = tmp_path / "work"
    (work / "inner").mkdir(parents=True)
    monkeypatch.chdir(work)
    opened = TokenStore(Path(way), verify=True)
    verify_store(opened, {})
    assert opened.tokens > 0


def test_prepare_into_a_folder_above(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    prepare_store(invented_documents(5), tokenizer, Path("../made"), held_out=0.0)
    assert TokenStore(Path("../made"), verify=True).tokens > 0


@pytest.mark.parametrize("name", ["../tokens-00000.bin", "a/../../x", "/etc/hostname", "", "a\nb"])
def test_names_that_lead_out_of_a_store(store: Path, name: str) -> None:
    path = store / "store.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("sha256")
    content["files"][0]["name"] = name
    text = json.dumps(content, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(text.replace("{", f'{{\n "sha256": "{digest}",', 1) + "\n", encoding="utf-8")
    with pytest.raises(StoreError, match="names a file outside itself"):
        TokenStore(store)


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("a", True),
        ("held-out/vocabulary/vocab.txt", True),
        ("..a/b..", True),
        ("..", False),
        ("a/..", False),
        ("a\\..\\b", False),
        ("c:x", False),
        (".", False),
        ("\0", False),
    ],
)
def test_names_inside_a_folder(name: str, inside: bool) -> None:
    assert names_a_file_inside(name) is inside


@pytest.mark.parametrize("name", ["bert_model.ckpt.index", "dict.txt", "pytorch_model.bin"])
@pytest.mark.parametrize("kind", SPECIAL)
def test_what_a_folder_is_is_found_without_reading_devices(
    folder: Path, opened: Opened, kind: str, name: str
) -> None:
    SPECIAL[kind](folder / name)
    harmless(opened(folder, "find"))


@pytest.mark.parametrize("kind", SPECIAL)
def test_special_files_are_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    SPECIAL[kind](path)
    with pytest.raises(UserError, match=r"file: cannot be read: .*; [a-z]"):
        read_bytes(path, UserError, largest=10, remedy="mend it")


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(path)
    file.touch()
    state = file.stat()
    monkeypatch.setattr("bertsmith.core.files.os.stat", lambda path: state)
    with pytest.raises(UserError, match="is not a regular file"):
        read_bytes(path, UserError, largest=10)


def test_more_than_the_largest_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 11)
    with pytest.raises(UserError, match="11 bytes long; at most 10 bytes"):
        read_bytes(path, UserError, largest=10)
    assert read_bytes(path, UserError, largest=11) == b"x" * 11
