"""Reading safetensors files; nothing is allocated before the header is checked.

The format: 8 bytes with the header's length (little-endian), the header as a JSON object, the data.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from bertsmith.core import kernels
from bertsmith.core.errors import ModelFolderError
from bertsmith.core.files import (
    Record,
    file_hash,
    open_regular,
    parse_json,
    read_json,
    text_hash,
    unreadable,
    write_parts,
)

_MAX_HEADER_BYTES = 8 * 2**20
_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2,
    "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
READABLE = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
}
"""Types that weights can have."""

# what is read by one call: the system takes 1,024 pieces of memory at once
_MAX_NEIGHBOURS, _NEIGHBOURING_BYTES = 1000, 2**28

# bytes below which a second thread is not worth its start
_READ_ALONE = 2**24


class Entry(NamedTuple):
    """The header's entry for one tensor; its bytes are [begin, end) of the data."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _version(status: os.stat_result) -> tuple[int, ...]:
    """Return the facts of a file that change when it is written or replaced."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class TensorFile:
    """A safetensors file whose header has been checked: `entries` by name.

    `ModelFolderError` unless every tensor's bytes fit its type and shape, and all of them together
    cover the file without a hole or an overlap.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _reading(path) as file:
            self._data, header = _read_header(file, path)
            status = os.fstat(file.fileno())
        self.entries: dict[str, Entry] = {
            name: _entry(name, value, path)
            for name, value in header.items()
            if name != "__metadata__"
        }
        _check_cover(self.entries, status.st_size - self._data, path)
        self._version = _version(status)

    def read(self, name: str) -> Tensor:
        """Return one tensor as float32, float64 rounded to the nearest.

        `ModelFolderError` if it is of a type that weights do not have, or is not finite.
        """
        return dict(self.read_many([name]))[name]

    def read_many(self, names: Collection[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield tensors as `read` returns them, with their names, in the order of the file.

        Neighbours are read by one call: where other threads run Python, each call waits for them.
        `ModelFolderError` too if the file is not the one whose header was read, or cannot be read
        any more.
        """
        for group in self._neighbours(names):
            raw = [self._empty(name) for name in group]
            with self.opened() as file:
                if not _fill(file, self._data + self.entries[group[0]].begin, raw):
                    raise self.shortened()
            for name in group:
                yield name, self._weights(name, raw.pop(0))

    def locate(self, name: str, part: tuple[int, int] = (0, 1)) -> StoredTensor:
        """Return the place of a tensor in the file, or of a part of it: (number, parts).

        `ModelFolderError` if it is of a type that weights do not have.
        """
        entry = self._readable(name)
        number, count = part
        size = (entry.end - entry.begin) // count
        return StoredTensor(self, name, entry.kind, self._data + entry.begin + number * size)

    @contextmanager
    def opened(self) -> Iterator[BufferedReader]:
        """Open the file; `ModelFolderError` if it is not the one whose header was read.

        Also for what the system refuses meanwhile.
        """
        with _reading(self.path) as file:
            if _version(os.fstat(file.fileno())) != self._version:
                raise ModelFolderError(
                    "was changed while it was read", where=self.path, remedy="open it again"
                )
            yield file

    def shortened(self) -> ModelFolderError:
        """Return the error for a file that ends before a tensor of it."""
        return ModelFolderError("became shorter while it was read", where=self.path)

    def not_finite(self, name: str) -> ModelFolderError:
        """Return the error for a tensor with values that are no numbers, or infinite."""
        return ModelFolderError(
            f"tensor {name} contains values that are not finite",
            where=self.path,
            remedy="the training that made it has failed; use an earlier model",
        )

    def _neighbours(self, names: Collection[str]) -> Iterator[list[str]]:
        """Yield names of tensors that follow one another in the file and are read by one call."""
        group: list[str] = []
        begin = end = 0
        for name in sorted(names, key=lambda name: self.entries[name].begin):
            entry = self.entries[name]
            full = len(group) == _MAX_NEIGHBOURS or entry.end - begin > _NEIGHBOURING_BYTES
            if group and (entry.begin != end or full):
                yield group
                group = []
            if not group:
                begin = entry.begin
            group.append(name)
            end = entry.end
        if group:
            yield group

    def _readable(self, name: str) -> Entry:
        entry = self.entries[name]
        if entry.kind not in READABLE:
            raise ModelFolderError(
                f"tensor {name} is of type {entry.kind}",
                where=self.path,
                remedy=f"weights can be {', '.join(READABLE)}",
            )
        return entry

    def _empty(self, name: str) -> Tensor:
        entry = self._readable(name)
        return torch.empty(entry.end - entry.begin, dtype=torch.uint8)

    def _weights(self, name: str, raw: Tensor) -> Tensor:
        entry = self.entries[name]
        tensor = raw.view(READABLE[entry.kind]).reshape(entry.shape).float()
        if not all_finite(tensor):
            raise self.not_finite(name)
        return tensor


class StoredTensor(NamedTuple):
    """A tensor in its file, or a part of one: its type, and the offset of its first byte."""

    file: TensorFile
    name: str
    kind: str
    offset: int


@contextmanager
def _reading(path: Path) -> Iterator[BufferedReader]:
    """Open a file of tensors; raises `ModelFolderError` for what the system refuses meanwhile."""
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise unreadable(ModelFolderError, error, path) from error


def _fill(file: BufferedReader, begin: int, tensors: Sequence[Tensor]) -> bool:
    """Fill tensors of bytes, one after the other, from an offset of a file; False at its end."""
    buffers = [memoryview(tensor.numpy().data) for tensor in tensors if len(tensor)]
    size = sum(map(len, buffers))
    # Windows has no call that fills several buffers, from an offset
    if not hasattr(os, "preadv"):
        file.seek(begin)
        return all(file.readinto(buffer) == len(buffer) for buffer in buffers)
    if size < _READ_ALONE:
        return _fill_from(file.fileno(), begin, buffers)
    # most of the time goes into new memory, which each thread clears page by page
    with ThreadPoolExecutor(max_workers=1) as beside:
        first, second = _cut(buffers, size // 2)
        other = beside.submit(_fill_from, file.fileno(), begin + size // 2, second)
        return _fill_from(file.fileno(), begin, first) and other.result()


def _cut(buffers: Sequence[memoryview], place: int) -> tuple[list[memoryview], list[memoryview]]:
    """Return the first `place` bytes of buffers, and the others."""
    before: list[memoryview] = []
    after: list[memoryview] = []
    for buffer in buffers:
        here = min(max(place, 0), len(buffer))
        before += [buffer[:here]] if here else []
        after += [buffer[here:]] if here < len(buffer) else []
        place -= len(buffer)
    return before, after


def _fill_from(file: int, begin: int, buffers: Sequence[memoryview]) -> bool:
    while buffers:
        count = os.preadv(file, buffers, begin)
        if not count:
            return False
        begin += count
        _, buffers = _cut(buffers, count)
    return True


def all_finite(tensor: Tensor) -> bool:
    """Return whether no value of a tensor is infinite or not a number."""
    values = tensor.detach().to("cpu", torch.float32).contiguous()
    if (library := kernels.library()) is not None:
        return bool(library.bs_all_finite(values.data_ptr(), values.numel()))
    # A sum is many times faster, and finite only where all are; it may overflow where all are.
    # numpy's takes one thread: those of torch wait for each other, forty times as long where others
    # have the processor.
    with np.errstate(all="ignore"):
        return math.isfinite(values.numpy().sum()) or bool(values.isfinite().all())


def _read_header(file: BinaryIO, path: Path) -> tuple[int, dict[str, Any]]:
    """Return the offset of the data, and the header."""
    start = file.read(8)
    if start == b"version ":
        raise ModelFolderError(
            "is a Git LFS pointer, not the weights", where=path, remedy="run: git lfs pull"
        )
    length = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= length <= _MAX_HEADER_BYTES:
        raise ModelFolderError("is not a safetensors file", where=path, remedy="fetch it again")
    text = file.read(length)
    try:
        header = parse_json(text, unique=True)
    except ValueError as error:
        raise damaged("its header is not JSON", path) from error
    if len(text) < length or not isinstance(header, dict):
        raise damaged("its header is incomplete", path)
    return 8 + length, header


def _entry(name: str, value: Any, path: Path) -> Entry:  # noqa: ANN401
    fields = value if isinstance(value, dict) else {}
    kind = str(fields.get("dtype"))
    shape, offsets = (_sizes(fields.get(key)) for key in ("shape", "data_offsets"))
    if kind not in _BYTES or shape is None or offsets is None or len(offsets) != 2:
        raise damaged(f"the header's entry for {name[:80]!r} cannot be understood", path)
    entry = Entry(kind, shape, *offsets)
    if entry.end - entry.begin != math.prod(entry.shape) * _BYTES[kind]:
        raise damaged(f"tensor {name[:80]!r} does not have the size of its shape", path)
    return entry


def _sizes(value: Any) -> tuple[int, ...] | None:  # noqa: ANN401
    """Return a short list of counts, or None."""
    fits = isinstance(value, list) and len(value) <= 8
    if fits and all(type(item) is int and 0 <= item < 2**48 for item in value):
        return tuple(value)
    return None


def _check_cover(entries: Mapping[str, Entry], size: int, path: Path) -> None:
    reached = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != reached:
            raise damaged(f"tensor {name[:80]!r} overlaps another or leaves a hole", path)
        reached = entry.end
    if reached != size:
        raise damaged(f"it holds {size} bytes of data where its header states {reached}", path)


def damaged(problem: str, path: Path) -> ModelFolderError:
    """Return the error for a damaged file of tensors."""
    return ModelFolderError(f"is damaged: {problem}", where=path, remedy="fetch or copy it again")


_KINDS = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Record:
    """Write tensors, which must be on the CPU, as a safetensors file.

    The bytes are a pure function of the names, the values and the metadata. Raises `DiskError`.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end, ordered = 0, dict(sorted(tensors.items()))
    for name, tensor in ordered.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        kind = _KINDS[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    start = len(text).to_bytes(8, "little") + text
    return write_parts(path, [start, *map(raw_bytes, ordered.values())])


def raw_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor, without a copy where it is contiguous."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return flat.numpy().data


WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
_MAX_INDEX_BYTES = 16 * 2**20
_MAX_SHARDS = 1000


class Weights:
    """Tensors by name, in any file; `path` is the file that lists them all.

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
        self.entries = {name: file.entries[name] for name, file in self._homes.items()}
        """The headers' entries by the tensors' names."""
        if names:
            self._check_index(_weight_map(folder))

    def read(self, name: str) -> Tensor:
        """Return one tensor as float32; raises what `TensorFile.read` raises."""
        return self._homes[name].read(name)

    def read_many(self, names: Collection[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield tensors and their names, file by file, as `TensorFile.read_many` does."""
        for file in self._files:
            yield from file.read_many([name for name in names if self._homes[name] is file])

    def locate(self, name: str, part: tuple[int, int]) -> StoredTensor:
        """Return the place of a tensor or a part of it, as `TensorFile.locate` does."""
        return self._homes[name].locate(name, part)

    def _check_index(self, index: dict[str, str]) -> None:
        for name, home in index.items():
            if name not in self._homes:
                _refuse(f"{home} lacks the tensor {name[:80]!r}", self.path)
            if self._homes[name].path.name != home:
                result = self._homes[name].path.name
                _refuse(f"tensor {name[:80]!r} is in {result}, not in {home}", self.path)
        for name, file in self._homes.items():
            if name not in index:
                _refuse(f"{file.path.name} holds {name[:80]!r}, which is not listed", self.path)


def shard_names(folder: Path) -> list[str]:
    """Return the names of the files that hold a folder's weights; none if there is one file.

    Raises `ModelFolderError` for an index that is none or leads out of the folder.
    """
    if (folder / WEIGHTS_FILE).exists() or not (folder / INDEX_FILE).exists():
        return []
    return sorted(set(_weight_map(folder).values()))


def weights_hash(folder: Path) -> str:
    """Return SHA-256 of the weights' file; of several, that of their names and hashes."""
    names = shard_names(folder)
    if not names:
        return file_hash(folder / WEIGHTS_FILE)
    hashes = {name: file_hash(folder / name) for name in names}
    return text_hash(json.dumps(hashes, sort_keys=True))


def _weight_map(folder: Path) -> dict[str, str]:
    path = folder / INDEX_FILE
    result = read_json(path, ModelFolderError, largest=_MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(result, dict) or not result:
        _refuse("holds no weight_map", path)
    for home in result.values():
        # a name and nothing else, so that it cannot lead out of the folder
        plain = isinstance(home, str) and home.isprintable() and not set(home) & set("/\\:")
        if not plain or not home.endswith(".safetensors") or home.startswith("."):
            _refuse(f"names the file {str(home)[:80]!r}, which no shard can be", path)
    if len(set(result.values())) > _MAX_SHARDS:
        _refuse(f"names {len(set(result.values())):,} files", path)
    return result


def _refuse(problem: str, path: Path) -> NoReturn:
    raise ModelFolderError(problem, where=path, remedy="fetch the index and its files again")
