"""A hub of one's own, with a model in it, and an empty cache."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertsmith.hub import models as names
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model
from hub.fake_hub import FakeHub, Files, Host, serving
from invented import tokenizer

__all__ = ["tokenizer"]


@pytest.fixture(scope="session")
def model_files(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of a small model with a masked-LM head."""
    folder = tmp_path_factory.mktemp("made") / "model"
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=24, layers=2, heads=3, feed_forward=48, longest=40
    )
    save_model(folder, build_model(ModelConfig(encoder=encoder, masked_lm=True), seed=2), tokenizer)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def model(model_files: Files, tmp_path: Path) -> Path:
    """The same model, in a folder."""
    return unpacked(model_files, tmp_path / "model")


def unpacked(files: Files, folder: Path) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


class Clock:
    """A clock on which nobody waits."""

    time = staticmethod(time.time)

    @staticmethod
    def sleep(seconds: float) -> None:
        del seconds


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """Where hubs answer; the client stays connected from test to test."""
    sessions = pytest.importorskip("huggingface_hub.utils._http")
    with serving() as host:
        yield host
        # since 1.0 there is one session, which is closed; to make one takes long
        (getattr(sessions, "close_session", None) or sessions.reset_sessions)()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: Host) -> Iterator[FakeHub]:
    """A hub that the client talks to; its cache is empty, and nobody is signed in."""
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # what is lost when a connection breaks off; the client's own is 10 MiB
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100)
    # what the client waits between attempts of its own
    for name in ("utils._http", "file_download"):
        monkeypatch.setattr(importlib.import_module(f"huggingface_hub.{name}"), "time", Clock())
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    hub = FakeHub()
    host.serve(hub)
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    # before 2.0 the client keeps a copy where it downloads
    for module in (constants, importlib.import_module("huggingface_hub.file_download")):
        if hasattr(module, "HUGGINGFACE_CO_URL_TEMPLATE"):
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    names._from_hub.cache_clear()
    yield hub
    names._from_hub.cache_clear()
