"""Conversion of pickled weights to safetensors, in a separate process that has limits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ModelFolderError, UserError
from bertsmith.core.files import disk_error
from bertsmith.weights.conversion.staging import (
    Change,
    TensorChange,
    TensorChanges,
    config_beside,
    copy_settings,
    indexed_files,
    read_settings,
    refuse_adapter,
)
from bertsmith.weights.conversion.unpickling import DISK, DISK_REFUSES
from bertsmith.weights.folder import check_file
from bertsmith.weights.tensors import TensorFile

_MODULE = "bertsmith.weights.conversion.unpickling"
_SUFFIXES = frozenset((".bin", ".pt", ".pth", ".ckpt"))
_NO_WEIGHTS = frozenset(
    ("training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt", "scheduler.bin")
)
_INDEX = re.compile(r"pytorch_model\.bin\.index(\.\w{1,20})?\.json", re.ASCII)
_SHARD = re.compile(r".*-\d{5}-of-\d{5}\.bin")
_USUAL = "pytorch_model.bin"
_NO_MODEL = re.compile(
    r"(rng_state|openvino_|adapter_|optimizer_|scheduler_).*|.*_optim_states\.pt"
)

_MEMORY = 512 * 2**20
"""Bytes it may use for itself, besides twice those of the files."""
_SECONDS = 15.0
_BYTES_A_SECOND = 20e6
_PATIENCE = 8
"""Most multiples of its processor time that it may take by the clock, beside other work."""
_MAX_RESULT_BYTES = 8 * 2**20
_FINDINGS = ("dropped", "renamed", "settings")


@dataclass(frozen=True, kw_only=True)
class Unpickled:
    """The findings of the process besides weights."""

    dropped: dict[str, str]
    """Names of what is no weight, and why."""
    renamed: dict[str, str]
    """Names that tensors have in the file, by those of the model itself, where they differ."""
    settings: dict[str, Any]
    """Numbers and words that a training program left with them."""


def find_pickled(source: Path) -> list[Path]:
    """Return the files of pickled weights that a folder has, or the one named; none without any.

    `ModelFolderError` where it is not said which of several, or the index leads out of the folder.
    """
    if source.is_file():
        return [source] if source.suffix in _SUFFIXES else []
    if not source.is_dir():
        return []
    if (source / _USUAL).exists():
        return [source / _USUAL]
    entries = sorted(source.iterdir())
    indices = [path for path in entries if _INDEX.fullmatch(path.name)]
    usual = source / f"{_USUAL}.index.json"
    if usual in indices:
        return indexed_files(usual, _SUFFIXES)
    results = [
        path
        for path in entries
        if path.suffix in _SUFFIXES
        and path.name not in _NO_WEIGHTS
        and not _NO_MODEL.fullmatch(path.name)
        and not (indices and _SHARD.fullmatch(path.name))
    ]
    if len(results) + len(indices) > 1:
        raise ModelFolderError(
            f"holds {len(results) + len(indices)} files of pickled weights",
            where=source,
            remedy=f"name one: {(results or indices)[0]}",
        )
    return indexed_files(indices[0], _SUFFIXES) if indices else results


def read_pickled(files: Sequence[Path], folder: Path) -> TensorChanges:
    """Write pickled weights as a folder in the hub's layout; `ModelFolderError` if that fails."""
    config_beside(files[0])
    result = unpickle(files, folder / "model.safetensors")
    copy_settings(files[0], folder)
    names = TensorFile(folder / "model.safetensors").entries
    refuse_adapter(names, files[0])
    moves = TensorChanges(dropped=dict(result.dropped))
    for name in names:
        change: Change = "renamed" if name in result.renamed else "same"
        source = str(result.renamed.get(name, name))
        moves.done.append(TensorChange(source=source, target=name, change=change))
    return moves


def unpickle(
    files: Sequence[Path], out: Path, *, home: Path | None = None, seconds: float = _SECONDS
) -> Unpickled:
    """Write the tensors of pickled files as one safetensors file, in a process that has limits.

    The files must be in the folder `home`, by default each in its own.
    Its memory is bounded by the size of the files, and so is its time, beginning with `seconds` of
    a core. `ModelFolderError` for a file that is damaged, asks for anything but tensors, or
    exceeds the limits; nothing that it asks for is run.
    """
    for path in files:
        check_file(path, (home or path.parent).resolve())
    size = sum(path.stat().st_size for path in files)
    result = out.with_name(f"{out.name}.json")
    time = seconds + size / _BYTES_A_SECOND
    job = {
        "files": [str(path.resolve()) for path in files],
        "out": str(out.resolve()),
        "result": str(result.resolve()),
        "memory": _MEMORY + 2 * size,
        "seconds": time,
        "room": 2 * size + _MAX_RESULT_BYTES,
    }
    try:
        status = _run(job, _PATIENCE * time)
        answer = _answer(result)
    finally:
        result.unlink(missing_ok=True)
    if status - DISK in DISK_REFUSES:
        refusal = OSError(status - DISK, os.strerror(status - DISK))
        raise disk_error(refusal, out) from refusal
    if "refused" in answer:
        raise _refusal(str(answer["refused"])[:300], files, str(answer.get("remedy", ""))[:300])
    if status or not out.exists():
        raise _refusal(
            "broke the process that read it: it is damaged, or takes more memory or time than "
            "weights of its size need",
            files,
        )
    return Unpickled(**{key: answer[key] for key in _FINDINGS})


def _run(job: dict[str, Any], patience: float) -> int:
    """Return the exit status of the process, below 0 for a signal."""
    try:
        done = subprocess.run(
            # -P: the folder that one happens to be in is none to import from
            [sys.executable, "-P", "-W", "ignore", "-m", _MODULE],
            input=json.dumps(job).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=patience,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1
    return done.returncode


def _answer(path: Path) -> dict[str, Any]:
    """Return the process's answer, if it has the form of a successful one."""
    try:
        answer = read_settings(path) if path.exists() else {}
    except UserError:
        return {}
    fits = all(isinstance(answer.get(key), dict) for key in _FINDINGS)
    return answer if fits or "refused" in answer else {key: {} for key in _FINDINGS}


def _refusal(problem: str, files: Sequence[Path], remedy: str = "") -> ModelFolderError:
    more = f" (or one of {len(files) - 1} files beside it)" if len(files) > 1 else ""
    remedy = remedy or "fetch it again, or do without it"
    return ModelFolderError(problem + more, where=files[0], remedy=remedy)
