"""A vocabulary, a store, a model and a classifier to do wrong things with, and a shell to do it in.

Tests run in a folder of their own; what is shared lies in another one, so that whatever a command
leaves behind is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model, start_from
from faults.shell import Shell
from invented import invented_documents, tokenizer
from limits import files_of

__all__ = ["tokenizer"]

Limited = Callable[[int], AbstractContextManager[None]]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> dict[str, str]:
    """Paths by name: vocab, store, model, classifier."""
    folder = tmp_path_factory.mktemp("shared")
    paths = {name: folder / name for name in ("vocab", "store", "model", "classifier")}
    tokenizer.save(paths["vocab"])
    prepare_store(invented_documents(60), tokenizer, paths["store"], held_out=0.1)
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=24, layers=2, heads=3, feed_forward=48, longest=40
    )
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    save_model(paths["model"], build_model(config, seed=2), tokenizer)
    save_model(paths["classifier"], start_from(paths["model"], labels=("a", "b"))[0], tokenizer)
    return {name: str(path) for name, path in paths.items()}


@pytest.fixture
def shell(
    shared: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    """The command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Shell(shared, capsys)


@pytest.fixture
def limited() -> Limited:
    """A disk that refuses files of more than some bytes, as a full one would."""
    return files_of
