"""The weights of a model folder: one safetensors file, or several and an index that lists them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NoReturn

from torch import Tensor

from bertsmith.batches.store import file_hash
from bertsmith.errors import ModelFolderError
from bertsmith.untrusted import read_json
from bertsmith.weights.tensors import Entry, TensorFile

WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
_LARGEST_INDEX = 16 * 2**20
_MOST_SHARDS = 1000


class Weights:
    """Tensors by name, wherever they lie; `path` is the file that tells of all of them.

    `ModelFolderError` unless the index names files of this folder, each file holds what the index
    says it holds, and no tensor lies in two of them.
    """

    def __init__(self, folder: Path) -> None:
        names = shard_names(folder)
        self.path = folder / (INDEX_FILE if names else WEIGHTS_FILE)
        self._files = [TensorFile(folder / name) for name in names or [WEIGHTS_FILE]]
        self._homes: dict[str, TensorFile] = {}
        for file in self._files:
            for name in file.entries:
                if name in self._homes:
                    first = self._homes[name].path.name
                    _refuse(f"tensor {name[:80]!r} is in {first} and {file.path.name}", self.path)
                self._homes[name] = file
        if names:
            self._check_index(_weight_map(folder))

    @property
    def entries(self) -> dict[str, Entry]:
        """What the headers say, by the tensors' names."""
        return {name: file.entries[name] for name, file in self._homes.items()}

    def read(self, name: str) -> Tensor:
        """One tensor as float32; raises what `TensorFile.read` raises."""
        return self._homes[name].read(name)

    def _check_index(self, index: dict[str, str]) -> None:
        for name, home in index.items():
            if name not in self._homes:
                _refuse(f"{home} lacks the tensor {name[:80]!r}", self.path)
            if self._homes[name].path.name != home:
                found = self._homes[name].path.name
                _refuse(f"tensor {name[:80]!r} is in {found}, not in {home}", self.path)
        for name, file in self._homes.items():
            if name not in index:
                _refuse(f"{file.path.name} holds {name[:80]!r}, which is not listed", self.path)


def shard_names(folder: Path) -> list[str]:
    """The names of the files that hold a folder's weights together; none where there is one file.

    Raises `ModelFolderError` for an index that is none or leads out of the folder.
    """
    if (folder / WEIGHTS_FILE).exists() or not (folder / INDEX_FILE).exists():
        return []
    return sorted(set(_weight_map(folder).values()))


def weights_hash(folder: Path) -> str:
    """SHA-256 of the weights' file; of several, that of their names and hashes."""
    names = shard_names(folder)
    if not names:
        return file_hash(folder / WEIGHTS_FILE)
    hashes = {name: file_hash(folder / name) for name in names}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def _weight_map(folder: Path) -> dict[str, str]:
    path = folder / INDEX_FILE
    found = read_json(path, ModelFolderError, largest=_LARGEST_INDEX).get("weight_map")
    if not isinstance(found, dict) or not found:
        _refuse("holds no weight_map", path)
    for home in found.values():
        # a name and nothing else, so that it cannot lead out of the folder
        plain = isinstance(home, str) and home.isprintable() and not set(home) & set("/\\:")
        if not plain or not home.endswith(".safetensors") or home.startswith("."):
            _refuse(f"names the file {str(home)[:80]!r}, which no shard can be", path)
    if len(set(found.values())) > _MOST_SHARDS:
        _refuse(f"names {len(set(found.values())):,} files", path)
    return found


def _refuse(what: str, path: Path) -> NoReturn:
    raise ModelFolderError(what, where=path, remedy="fetch the index and its files again")
