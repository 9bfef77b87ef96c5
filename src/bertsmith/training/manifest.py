"""The manifest of a checkpoint: what its files were when they were written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.batches.store import file_hash
from bertsmith.errors import RunFolderError
from bertsmith.training.run_format import RUN_FORMAT, other_version
from bertsmith.untrusted import read_bytes
from bertsmith.weights.writing import Record, write_bytes

__all__ = ["Manifest", "Record", "check_files", "read_manifest", "write_manifest"]

_LARGEST = 2**20


class Manifest(NamedTuple):
    """The run that a checkpoint is of, its step, and its files by name."""

    run: str
    step: int
    records: dict[str, Record]


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest that carries the hash of its own content."""
    files = {name: record._asdict() for name, record in manifest.records.items()}
    content = {"format": RUN_FORMAT, "run": manifest.run, "step": manifest.step, "files": files}
    write_bytes(path, _rendered(content))


def read_manifest(path: Path) -> Manifest:
    """A manifest; `ValueError` that names it when it is not, byte for byte, what was written.

    The same for a manifest that another version of the program wrote.
    """
    written, version = read_bytes(path, RunFolderError, largest=_LARGEST), ""
    try:
        content = json.loads(written)
        del content["sha256"]
        # rendering it again also finds what the parser would forgive
        if _rendered(content) == written:
            version = other_version(content.get("format"))
            records = {name: Record(**record) for name, record in content["files"].items()}
            if not version:
                return Manifest(content["run"], content["step"], records)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise ValueError(f"{path}: was written by {version}" if version else f"{path}: is damaged")


def check_files(folder: Path, records: Mapping[str, Record]) -> str:
    """What is wrong with the files of a folder, naming the first, or nothing."""
    for name, record in records.items():
        path = folder / name
        if path.stat().st_size != record.bytes:
            return f"{path}: has another size than when it was written"
        if file_hash(path) != record.sha256:
            return f"{path}: is damaged"
    return ""


def _rendered(content: dict[str, Any]) -> bytes:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return (json.dumps({"sha256": digest, **content}, indent=1) + "\n").encode()
