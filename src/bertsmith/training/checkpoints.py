"""Checkpoints: written whole or not at all, and read back past a damaged one.

    step-00001200/
      manifest.json        size and SHA-256 of every other file
      weights.safetensors  the model's parameters
      optimiser.safetensors
      state.json           step, place in the data, seconds

Written under a temporary name, every file hashed into the manifest and flushed to the disk, then
renamed, and the folder's own entry flushed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bertsmith.batches.pretraining import Place
from bertsmith.batches.store import file_hash
from bertsmith.config import Config
from bertsmith.disk import flush_to_disk, writing
from bertsmith.errors import ConfigError, RunFolderError
from bertsmith.log import say
from bertsmith.weights.tensors import write_tensors

_KEPT = 2


@dataclass(frozen=True, kw_only=True)
class State(Config):
    """Where training stands."""

    step: int = 0
    """Optimiser steps taken."""
    place: Place = field(default_factory=Place)
    """The next sequence."""
    seconds: float = 0.0
    """Time spent in training steps."""
    tokens: int = 0
    """Tokens the model has seen."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Everything that training needs to go on."""

    state: State
    weights: dict[str, Tensor]
    optimiser: dict[str, Tensor]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Commit a checkpoint to `folder` and delete all but the newest two; returns its folder.

    Raises `DiskError`; the earlier checkpoints are then as they were.
    """
    final = folder / f"step-{checkpoint.state.step:08}"
    temporary = folder / f".{final.name}.partial"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".step-*.partial"):
            shutil.rmtree(left, ignore_errors=True)
        try:
            temporary.mkdir()
            _write(temporary, checkpoint)
            shutil.rmtree(final, ignore_errors=True)
            temporary.rename(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        flush_to_disk(folder)
    for old in sorted(folder.glob("step-*"))[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    write_tensors(folder / "weights.safetensors", checkpoint.weights, as_float=False)
    write_tensors(folder / "optimiser.safetensors", checkpoint.optimiser, as_float=False)
    checkpoint.state.dump(folder / "state.json")
    manifest = {
        path.name: {"bytes": path.stat().st_size, "sha256": file_hash(path)}
        for path in sorted(folder.iterdir())
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for path in (*folder.iterdir(), folder):
        flush_to_disk(path)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint, None if there is none; damaged ones are named and passed over.

    Raises `RunFolderError` when there are checkpoints and all are damaged.
    """
    found = sorted(folder.glob("step-*"), reverse=True)
    for path in found:
        problem = _damage(path)
        if not problem:
            return Checkpoint(
                state=State.load(path / "state.json"),
                weights=load_file(path / "weights.safetensors"),
                optimiser=load_file(path / "optimiser.safetensors"),
            )
        say(f"{path}: {problem}; passed over")
    if found:
        raise RunFolderError(
            "no checkpoint is whole", where=folder, remedy="start again with another --out"
        )
    return None


def _damage(path: Path) -> str:
    """What is wrong with a checkpoint, or nothing."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        for name, record in manifest.items():
            if Path(name).name != name:
                return f"manifest names {name!r}"
            if (path / name).stat().st_size != record["bytes"]:
                return f"{name} has another size than when it was written"
            if file_hash(path / name) != record["sha256"]:
                return f"{name} is damaged"
        if not {"state.json", "weights.safetensors", "optimiser.safetensors"} <= manifest.keys():
            return "the manifest lacks files"
        State.load(path / "state.json")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ConfigError):
            return f"state.json {error.what}"
        return str(error) if isinstance(error, OSError) else "manifest is damaged"
    except SafetensorError as error:
        return str(error)
    return ""
