"""Versions of model folders: another model in a folder is noticed, other files in it are not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bertsmith.core.errors import ModelFolderError
from bertsmith.network.model import build_model
from bertsmith.weights.folder import save_model
from bertsmith.weights.versions import FolderVersion
from families import MODELS, TOKENIZERS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    save_model(folder, build_model(MODELS["bert-masked_lm"], seed=1), TOKENIZERS["bert"])
    return folder


def test_files_that_are_not_read_change_nothing(folder: Path) -> None:
    version = FolderVersion.of(folder)
    (folder / "README.md").write_text("another card")
    (folder / "vectors.npy").write_bytes(b"")
    (folder / "runs").mkdir()
    (folder / "config.json").chmod(0o444)
    version.check()


def test_a_copy_with_its_times_is_the_same(folder: Path) -> None:
    version = FolderVersion.of(folder)
    folder.rename(folder.with_name("earlier"))
    shutil.copytree(folder.with_name("earlier"), folder)
    version.check()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt"])
def test_each_file_that_is_read_counts(folder: Path, name: str) -> None:
    version = FolderVersion.of(folder)
    later = (folder / name).stat().st_mtime_ns + 1
    os.utime(folder / name, ns=(later, later))
    with pytest.raises(ModelFolderError, match="was changed while it was in use"):
        version.check()


def test_so_does_one_that_is_new_or_gone(folder: Path) -> None:
    version = FolderVersion.of(folder)
    (folder / "added_tokens.json").write_text("{}")
    with pytest.raises(ModelFolderError):
        version.check()
    version = FolderVersion.of(folder)
    shutil.rmtree(folder)
    with pytest.raises(ModelFolderError):
        version.check()


def test_the_modules_of_sentence_transformers_count(folder: Path) -> None:
    (folder / "1_Pooling").mkdir()
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text("{}")
    FolderVersion.of(folder).check()
    (folder / "modules.json").write_text('[{"path": ""}, {"path": "1_Pooling"}]')
    version = FolderVersion.of(folder)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")
    version.check()
    pooling.write_text("{ }")
    with pytest.raises(ModelFolderError):
        version.check()
