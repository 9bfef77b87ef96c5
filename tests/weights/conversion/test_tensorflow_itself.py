"""The round trip with TensorFlow itself: it reads what we write, we read what it writes.

BERTSMITH_TENSORFLOW names a Python that has it (pip install tensorflow-cpu in an environment of its
own); without one these are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
)

from bertsmith.weights.folder import load_model
from verbs import convert
from weights.conversion.reference import (
    SIZES,
    Arrays,
    arrays,
    compared,
    google_config,
    varied,
    write_vocabulary,
)

PROGRAM = Path(__file__).with_name("tensorflow_itself.py")
KINDS: tuple[tuple[type[Any], dict[str, Any]], ...] = (
    (BertForPreTraining, {}),
    (BertForSequenceClassification, {"num_labels": 5}),
    (BertForQuestionAnswering, {}),
)


@pytest.fixture
def tensorflow() -> str:
    """The Python that has TensorFlow."""
    python = os.environ.get("BERTSMITH_TENSORFLOW")
    if not python:
        pytest.skip("BERTSMITH_TENSORFLOW, a Python that has TensorFlow, is not set")
    return python


def run(python: str, *arguments: str | Path) -> None:
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    for name in ("PYTHONPATH", "PYTHONHOME"):
        quiet.pop(name, None)
    command = [python, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def made(kind: type[Any], changes: dict[str, Any]) -> Any:  # noqa: ANN401
    torch.manual_seed(1)
    return varied(kind(BertConfig(**SIZES, **changes)))


def with_slots(values: Arrays) -> Arrays:
    """As the checkpoint of a training has them, with what Google's optimiser keeps."""
    slots = {f"{name}/adam_{which}": value * 0 for name, value in values.items() for which in "mv"}
    return values | slots | {"global_step": np.int64(7)}


@pytest.mark.parametrize(("kind", "changes"), KINDS)
@pytest.mark.parametrize("sharded", [False, True])
def test_we_read_what_it_writes(
    tmp_path: Path, tensorflow: str, kind: type[Any], changes: dict[str, Any], sharded: bool
) -> None:
    theirs = made(kind, changes)
    values = with_slots(arrays(theirs))
    np.savez(tmp_path / "values.npz", **{n.replace("/", "|"): value for n, value in values.items()})
    folder = tmp_path / "uncased_L-3_H-32_A-4"
    write_vocabulary(folder)
    (folder / "bert_config.json").write_text(json.dumps(google_config()))
    prefix = folder / "bert_model.ckpt"
    run(tensorflow, "write", tmp_path / "values.npz", prefix, *(["sharded"] if sharded else []))
    assert len(list(folder.glob("*.data-*"))) == 1 + sharded
    result = convert(folder, tmp_path / "out")
    compared(load_model(tmp_path / "out")[0], theirs)
    assert len(result.moves.dropped) == 2 * len(arrays(theirs)) + 1
    saved, state = kind.from_pretrained(tmp_path / "out").state_dict(), theirs.state_dict()
    assert saved.keys() == state.keys()
    assert all(torch.equal(saved[name], state[name]) for name in state)


@pytest.mark.parametrize(("kind", "changes"), KINDS)
def test_it_reads_what_we_write(
    tmp_path: Path, tensorflow: str, kind: type[Any], changes: dict[str, Any]
) -> None:
    theirs = made(kind, changes)
    write_vocabulary(tmp_path / "hub")
    theirs.save_pretrained(tmp_path / "hub")
    convert(tmp_path / "hub", tmp_path / "google", to="tensorflow")
    read = tmp_path / "read.npz"
    run(tensorflow, "read", tmp_path / "google" / "bert_model.ckpt", read)
    found = {name.replace("|", "/"): value for name, value in np.load(read).items()}
    expected = arrays(theirs)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], value) for name, value in expected.items())
