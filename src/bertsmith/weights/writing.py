"""Writing files of weights: hashed on their way, and on the disk when done.

The bytes are hashed as they are in memory, not as they are read back, so that what a disk garbles
is found when it is read. Hashing, writing and flushing let other threads work meanwhile, which
the library's own writer does not.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bertsmith.disk import write_whole, writing

_BLOCK = 4 << 20
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


class Record(NamedTuple):
    """A file as it was written."""

    bytes: int
    sha256: str


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Record:
    """Write tensors, which must be on the CPU, as a safetensors file; raises `DiskError`.

    The bytes are a pure function of the names, the values and the metadata.
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
    return write_parts(path, [memoryview(start), *map(raw_bytes, ordered.values())])


def write_bytes(path: Path, content: bytes) -> Record:
    """Write a small file; raises `DiskError`."""
    return write_parts(path, [memoryview(content)])


def write_parts(path: Path, parts: Iterable[memoryview]) -> Record:
    """Write a file of these parts, one after the other; raises `DiskError`."""
    digest, size = hashlib.sha256(), 0
    with writing(path), path.open("wb", buffering=0) as file:
        for part in parts:
            for begin in range(0, len(part), _BLOCK):
                block = part[begin : begin + _BLOCK]
                digest.update(block)
                write_whole(file, block)
            size += len(part)
        os.fsync(file.fileno())
    return Record(size, digest.hexdigest())


def raw_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, without a copy where it is contiguous."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return flat.numpy().data
