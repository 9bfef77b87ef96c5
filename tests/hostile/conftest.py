"""Folders nobody should trust, and a process to open them in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model
from invented import tokenizer

__all__ = ["tokenizer"]

Opened = Callable[..., dict[str, Any]]
_HERE = Path(__file__).parent
_SOURCE = _HERE.parents[1] / "src"


@pytest.fixture(scope="session")
def honest(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that loads."""
    folder = tmp_path_factory.mktemp("honest") / "model"
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=24, layers=2, heads=3, feed_forward=48, longest=40
    )
    config = ModelConfig(
        encoder=encoder, pooler=True, masked_lm=True, predicts="class", labels=("a", "b")
    )
    save_model(folder, build_model(config, seed=2), tokenizer)
    return folder


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    return Path(shutil.copytree(honest, tmp_path / "model"))


@pytest.fixture(scope="session")
def worker(honest: Path) -> Iterator[subprocess.Popen[str]]:
    """The process of worker.py."""
    paths = [str(_SOURCE), str(_HERE.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(_HERE / "worker.py"), str(honest)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def opened(worker: subprocess.Popen[str]) -> Opened:
    """Open a folder in a child of the worker; what came of it."""

    def ask(folder: Path, how: str = "load") -> dict[str, Any]:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps({"folder": str(folder), "how": how}) + "\n")
        worker.stdin.flush()
        answer: dict[str, Any] = json.loads(worker.stdout.readline())
        return answer

    return ask
