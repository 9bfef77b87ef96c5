"""Reading safetensors files; nothing is allocated before the header is checked.

The format: 8 bytes with the header's length (little-endian), the header as a JSON object, the data.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from bertsmith.errors import ModelFolderError
from bertsmith.untrusted import open_regular, too_deep

_LARGEST_HEADER = 8 * 2**20
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


class Entry(NamedTuple):
    """What the header says of one tensor; its bytes are [begin, end) of the data."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int


class TensorFile:
    """A safetensors file whose header has been checked: `entries` by name.

    `ModelFolderError` unless every tensor's bytes fit its type and shape, and all of them together
    cover the file without a hole or an overlap.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_regular(path) as file:
                self._data, header = _read_header(file, path)
                size = os.fstat(file.fileno()).st_size - self._data
        except OSError as error:
            raise ModelFolderError(f"cannot be read: {error.strerror}", where=path) from error
        self.entries: dict[str, Entry] = {
            name: _entry(name, value, path)
            for name, value in header.items()
            if name != "__metadata__"
        }
        _check_cover(self.entries, size, path)

    def read(self, name: str) -> Tensor:
        """One tensor as float32, float64 rounded to the nearest.

        `ModelFolderError` if it is of a type that weights do not have, or is not finite.
        """
        entry = self.entries[name]
        if entry.kind not in READABLE:
            raise ModelFolderError(
                f"tensor {name} is of type {entry.kind}",
                where=self.path,
                remedy=f"weights can be {', '.join(READABLE)}",
            )
        raw = torch.empty(entry.end - entry.begin, dtype=torch.uint8)
        with open_regular(self.path) as file:
            file.seek(self._data + entry.begin)
            if file.readinto(raw.numpy().data) < len(raw):
                raise ModelFolderError("became shorter while it was read", where=self.path)
        tensor = raw.view(READABLE[entry.kind]).reshape(entry.shape).float()
        # a sum is many times faster, and finite only where all are; it may overflow where all are
        if not math.isfinite(tensor.sum().item()) and not tensor.isfinite().all():
            raise ModelFolderError(
                f"tensor {name} holds values that are no numbers",
                where=self.path,
                remedy="the training that made it has failed; use an earlier model",
            )
        return tensor


def _read_header(file: BinaryIO, path: Path) -> tuple[int, dict[str, Any]]:
    """Where the data begins, and the header."""
    start = file.read(8)
    if start == b"version ":
        raise ModelFolderError(
            "is a Git LFS pointer, not the weights", where=path, remedy="run: git lfs pull"
        )
    length = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= length <= _LARGEST_HEADER:
        raise ModelFolderError("is no safetensors file", where=path, remedy="fetch it again")
    text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise _damaged("its header is no JSON", path) from error
    if len(text) < length or not isinstance(header, dict) or too_deep(header):
        raise _damaged("its header is incomplete", path)
    return 8 + length, header


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _entry(name: str, value: Any, path: Path) -> Entry:  # noqa: ANN401
    fields = value if isinstance(value, dict) else {}
    kind = str(fields.get("dtype"))
    shape, offsets = (_sizes(fields.get(key)) for key in ("shape", "data_offsets"))
    if kind not in _BYTES or shape is None or offsets is None or len(offsets) != 2:
        raise _damaged(f"the header's entry for {name[:80]!r} cannot be understood", path)
    entry = Entry(kind, shape, *offsets)
    if entry.end - entry.begin != math.prod(entry.shape) * _BYTES[kind]:
        raise _damaged(f"tensor {name[:80]!r} has not the size that its shape asks for", path)
    return entry


def _sizes(value: Any) -> tuple[int, ...] | None:  # noqa: ANN401
    """A short list of counts, or None."""
    fits = isinstance(value, list) and len(value) <= 8
    if fits and all(type(each) is int and 0 <= each < 2**48 for each in value):
        return tuple(value)
    return None


def _check_cover(entries: Mapping[str, Entry], size: int, path: Path) -> None:
    reached = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != reached:
            raise _damaged(f"tensor {name[:80]!r} overlaps another or leaves a hole", path)
        reached = entry.end
    if reached != size:
        raise _damaged(f"it holds {size} bytes of data where its header tells of {reached}", path)


def _damaged(what: str, path: Path) -> ModelFolderError:
    return ModelFolderError(f"is damaged: {what}", where=path, remedy="fetch or copy it again")
