"""TensorFlow's checkpoints, without TensorFlow: an index of tensors and files of their bytes.

PREFIX.index is a sorted table; its values are protocol buffers, BundleHeaderProto under the empty
key and BundleEntryProto under each tensor's name. PREFIX.data-00000-of-00001 and the like hold the
bytes, row by row, little-endian.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bertsmith.errors import ModelFolderError
from bertsmith.protocol_buffers import bytes_field, fields, fixed_field, number_field
from bertsmith.untrusted import open_regular, read_bytes
from bertsmith.weights.conversion.checksum import crc32c, masked
from bertsmith.weights.conversion.sorted_table import END, is_table, read_table, written_table
from bertsmith.weights.writing import raw_bytes, write_bytes, write_parts

INDEX_SUFFIX = ".index"

_LARGEST_INDEX = 16 * 2**20
_MOST_SHARDS = 1000
_MOST_AXES = 8
_KINDS = {1: torch.float32, 19: torch.float16, 14: torch.bfloat16}
"""Numbers of DataType, and what weights can be."""
_FLOAT32 = 1


class Entry(NamedTuple):
    """What the index says of one tensor; its bytes are [offset, offset + size) of its shard."""

    kind: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    slices: bool


class TensorBundle:
    """A checkpoint whose index has been checked: `entries` by name.

    `ModelFolderError` unless every tensor's bytes lie in a file that is there.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.index = prefix.with_name(prefix.name + INDEX_SUFFIX)
        try:
            table = read_table(_read_index(self.index))
            shards = _shards(table.pop(b"", None))
            self.entries = {
                name.decode(): _entry(value)
                for name, value in table.items()
                # slices, under keys of another kind; what they are slices of is refused if read
                if not name.startswith(b"\0")
            }
        except ValueError as error:
            if isinstance(error, ModelFolderError):
                raise
            raise _damaged(str(error), self.index) from error
        self._shards = [
            prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{shards:05d}")
            for number in range(shards)
        ]
        self._check_places()

    def read(self, name: str) -> Tensor:
        """One tensor; `ModelFolderError` if it is of no type weights have, or damaged."""
        entry, path = self.entries[name], self._shards[self.entries[name].shard]
        if entry.slices:
            raise ModelFolderError(
                f"the variable {name} was saved in slices",
                where=self.index,
                remedy="save it again without a partitioner",
            )
        if entry.kind not in _KINDS:
            raise ModelFolderError(
                f"the variable {name} is of TensorFlow's type {entry.kind}",
                where=self.index,
                remedy="weights can be float, half or bfloat16",
            )
        kind = _KINDS[entry.kind]
        if math.prod(entry.shape) * kind.itemsize != entry.size:
            raise _damaged(f"{name} has not the size that its shape asks for", self.index)
        raw = torch.empty(entry.size, dtype=torch.uint8)
        view = raw.numpy().data
        with open_regular(path) as file:
            file.seek(entry.offset)
            if file.readinto(view) < entry.size:
                raise ModelFolderError("became shorter while it was read", where=path)
        if masked(crc32c(view)) != entry.checksum:
            raise _damaged(f"{name} has not the checksum that was written with it", path)
        return raw.view(kind).reshape(entry.shape)

    def _check_places(self) -> None:
        try:
            sizes = [path.stat().st_size for path in self._shards]
        except OSError as error:
            raise ModelFolderError(
                f"cannot be read: {error.strerror}",
                where=error.filename,
                remedy="the index names it: fetch all files of the checkpoint",
            ) from error
        for name, entry in self.entries.items():
            if entry.shard >= len(sizes) or entry.offset + entry.size > sizes[entry.shard]:
                raise _damaged(f"{name[:80]} lies outside of the files of data", self.index)
        if sum(entry.size for entry in self.entries.values()) > sum(sizes):
            raise _damaged("tensors overlap", self.index)


def write_bundle(prefix: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of float32, on the CPU, as a checkpoint of one shard; raises `DiskError`."""
    version = number_field(1, 1)
    entries = {b"": number_field(1, 1) + bytes_field(3, version)}
    offset, parts = 0, []
    for name, tensor in sorted(tensors.items()):
        assert tensor.dtype == torch.float32
        raw = raw_bytes(tensor)
        shape = b"".join(bytes_field(2, number_field(1, size)) for size in tensor.shape)
        entries[name.encode()] = (
            number_field(1, _FLOAT32)
            + bytes_field(2, shape)
            + number_field(4, offset)
            + number_field(5, len(raw))
            + fixed_field(6, masked(crc32c(raw)))
        )
        parts.append(raw)
        offset += len(raw)
    write_parts(prefix.with_name(f"{prefix.name}.data-00000-of-00001"), parts)
    write_bytes(prefix.with_name(prefix.name + INDEX_SUFFIX), written_table(entries))


def is_checkpoint(index: Path) -> bool:
    """Whether a file is the index of a checkpoint of TensorFlow."""
    try:
        with open_regular(index) as file:
            file.seek(-min(END, os.fstat(file.fileno()).st_size), os.SEEK_END)
            return is_table(file.read(END))
    except OSError:
        return False


def _read_index(path: Path) -> bytes:
    return read_bytes(path, ModelFolderError, largest=_LARGEST_INDEX)


def _shards(header: bytes | None) -> int:
    """How many files hold the bytes."""
    if header is None:
        raise ValueError("it has no header")
    said = dict(fields(header))
    count, order = said.get(1, 0), said.get(2, 0)
    if order != 0:
        raise ValueError("its bytes are big-endian, which cannot be read")
    if not isinstance(count, int) or not 1 <= count <= _MOST_SHARDS:
        raise ValueError("it tells of no number of files that could be")
    return count


def _entry(message: bytes) -> Entry:
    numbers = dict.fromkeys(range(1, 7), 0)
    shape: tuple[int, ...] = ()
    slices = False
    for number, value in fields(message):
        if number == 2 and isinstance(value, bytes):
            shape = _shape(value)
        elif number == 6 and isinstance(value, bytes):
            numbers[6] = int.from_bytes(value, "little")
        elif number == 7:
            slices = True
        elif number in numbers and isinstance(value, int):
            numbers[number] = value
    kind, _, shard, offset, size, checksum = numbers.values()
    return Entry(kind, shape, shard, offset, size, checksum, slices)


def _shape(message: bytes) -> tuple[int, ...]:
    sizes: list[int] = []
    for number, axis in fields(message):
        if number == 2 and isinstance(axis, bytes):
            size = dict(fields(axis)).get(1, 0)
            if not isinstance(size, int) or size >= 2**48 or len(sizes) == _MOST_AXES:
                raise ValueError("a tensor of a shape that cannot be")
            sizes.append(size)
    return tuple(sizes)


def _damaged(what: str, path: Path) -> ModelFolderError:
    return ModelFolderError(f"is damaged: {what}", where=path, remedy="fetch or copy it again")
