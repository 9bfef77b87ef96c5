"""TensorFlow's checkpoints, without TensorFlow: an index of tensors and files of their bytes.

PREFIX.index is a sorted table; its values are protocol buffers, BundleHeaderProto under the empty
key and BundleEntryProto under each tensor's name. PREFIX.data-00000-of-00001 and the like hold the
bytes, row by row, little-endian.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.files import open_regular, read_bytes, write_parts
from bertsmith.core.protocol_buffers import (
    bytes_field,
    fields,
    fixed_field,
    number_field,
    read_varint,
    varint,
)
from bertsmith.weights.tensors import damaged, raw_bytes

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_MASK = 0xA282EAD8
_LANE = 2048
"""Bytes of a lane."""
_MAX_LANES = 4096
_MIN_LANES = 32
"""Fewer take longer than their bytes one by one."""

_Words = NDArray[np.uint32]


def crc32c(data: bytes | memoryview) -> int:
    """Return the checksum of some bytes."""
    state, begin = _ONES, 0
    while (lanes := min((len(data) - begin) // _LANE, _MAX_LANES)) >= _MIN_LANES:
        end = begin + lanes * _LANE
        state = _in_lanes(np.frombuffer(data[begin:end], dtype="<u2"), lanes, state)
        begin = end
    table = _bytewise()
    for byte in bytes(data[begin:]):
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ _ONES


def masked(checksum: int) -> int:
    """As files hold it, so that the checksum of a text with checksums in it is none of them."""
    return ((checksum >> 15 | checksum << 17) + _MASK) & _ONES


def _in_lanes(words: NDArray[Any], lanes: int, state: int) -> int:
    """Return the register after some text of whole lanes, from the one before it."""
    # lanes of nothing in front, to a power of two of them, change nothing
    registers = np.zeros(1 << (lanes - 1).bit_length(), dtype=np.uint32)
    own = registers[len(registers) - lanes :]
    own[0] = state
    table = _pairwise()
    for column in np.ascontiguousarray(words.reshape(lanes, -1).T):
        own[:] = table[(own ^ column) & 0xFFFF] ^ (own >> 16)
    shift = _shift()
    while len(registers) > 1:
        registers = _applied(shift, registers[0::2]) ^ registers[1::2]
        shift = _applied(shift, shift)
    return int(registers[0])


def _applied(matrix: _Words, values: _Words) -> _Words:
    """Return a matrix of bits, one word a column, times every value."""
    result = np.zeros_like(values)
    for bit in range(32):
        result ^= np.where(values >> np.uint32(bit) & 1, matrix[bit], np.uint32(0))
    return result


@cache
def _bytewise() -> list[int]:
    """Return the effect of each byte on a register."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return table


@cache
def _pairwise() -> _Words:
    """Return the effect of each two bytes on a register."""
    single = np.array(_bytewise(), dtype=np.uint32)
    once = single[np.arange(1 << 16) & 0xFF] ^ (np.arange(1 << 16, dtype=np.uint32) >> 8)
    return np.asarray(single[once & 0xFF] ^ (once >> 8), dtype=np.uint32)


@cache
def _shift() -> _Words:
    """Return the effect of a lane of zeros on a register."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    single = np.array(_bytewise(), dtype=np.uint32)
    matrix = np.asarray(single[bits & 0xFF] ^ (bits >> 8), dtype=np.uint32)
    for _ in range(_LANE.bit_length() - 1):
        matrix = _applied(matrix, matrix)
    return matrix


_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
END = len(_MAGIC)
"""The magic bytes of a table, at the end of the file."""
_FOOTER = 48
_TRAILER = 5
"""Bytes after a block: how it is compressed, and its checksum."""
_MAX_KEY_LENGTH = 512
_MAX_ENTRIES = 2**14
_WRITTEN_BLOCK = 16_384
_KEYS_A_RESTART = 16

_Handle = tuple[int, int]
"""The offset of a block, and its length without its trailer."""


def is_table(end: bytes) -> bool:
    """Return whether a file that ends like this can be a table."""
    return end.endswith(_MAGIC)


def read_table(data: bytes) -> dict[bytes, bytes]:
    """Return the entries of a table, sorted; `ValueError` if it is damaged.

    What is allocated is bounded by the bytes given, a key's length and a number of entries.
    """
    if len(data) < _FOOTER or not is_table(data):
        raise ValueError("its end is not that of a sorted table")
    footer = data[-_FOOTER:]
    _, at = _handle(footer, 0)  # of blocks about blocks, of which there are none
    index, _ = _handle(footer, at)
    results: dict[bytes, bytes] = {}
    last = b""
    for bound, place in _entries(_block(data, index)):
        earlier = len(results)
        for key, value in _entries(_block(data, _handle(place, 0)[0])):
            # also what keeps blocks with entries from being read twice
            if results and key <= last:
                raise ValueError("the keys are out of order")
            if len(results) == _MAX_ENTRIES:
                raise ValueError(f"more than {_MAX_ENTRIES} entries")
            results[key], last = value, key
        if len(results) == earlier:
            raise ValueError("a block holds nothing")
        if last > bound:
            raise ValueError("a block holds more than the index says")
    return results


def written_table(entries: Mapping[bytes, bytes]) -> bytes:
    """Return the bytes of a table with these entries."""
    data, index = bytearray(), {}
    block: dict[bytes, bytes] = {}
    size = 0
    for key, value in sorted(entries.items()):
        block[key] = value
        size += len(key) + len(value)
        if size >= _WRITTEN_BLOCK:
            index[key] = _append(data, block)
            block, size = {}, 0
    if block:
        index[max(block)] = _append(data, block)
    footer = _append(data, {}) + _append(data, index)
    return bytes(data) + footer.ljust(_FOOTER - len(_MAGIC), b"\0") + _MAGIC


def _handle(data: bytes, at: int) -> tuple[_Handle, int]:
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return (offset, size), at


def _block(data: bytes, handle: _Handle) -> bytes:
    offset, size = handle
    if offset + size + _TRAILER > len(data) - _FOOTER:
        raise ValueError("a block is outside the file")
    end = offset + size
    kind, checksum = data[end], int.from_bytes(data[end + 1 : end + _TRAILER], "little")
    if masked(crc32c(data[offset : end + 1])) != checksum:
        raise ValueError("a block does not have the checksum that was written with it")
    if kind:
        raise ValueError("a block is compressed, which TensorFlow's own never are")
    return data[offset:end]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if len(block) < 4 or end < 0:
        raise ValueError("a block without its list of places")
    key, at = b"", 0
    while at < end:
        shared, at = read_varint(block, at)
        fresh, at = read_varint(block, at)
        size, at = read_varint(block, at)
        if shared > len(key) or shared + fresh > _MAX_KEY_LENGTH or fresh + size > end - at:
            raise ValueError("an entry does not fit into its block")
        key = key[:shared] + block[at : at + fresh]
        at += fresh + size
        yield key, block[at - size : at]


def _append(data: bytearray, entries: Mapping[bytes, bytes]) -> bytes:
    """Put a block behind the data; returns its handle."""
    offset, block, restarts, before = len(data), bytearray(), [], b""
    for number, (key, value) in enumerate(entries.items()):
        shared = 0
        if number % _KEYS_A_RESTART == 0:
            restarts.append(len(block))
        else:
            pairs = zip(key, before, strict=False)
            shared = next(
                (i for i, (a, b) in enumerate(pairs) if a != b), min(len(key), len(before))
            )
        block += varint(shared) + varint(len(key) - shared) + varint(len(value))
        block += key[shared:] + value
        before = key
    for place in restarts or [0]:
        block += place.to_bytes(4, "little")
    block += len(restarts or [0]).to_bytes(4, "little") + b"\0"
    data += block + masked(crc32c(bytes(block))).to_bytes(4, "little")
    return varint(offset) + varint(len(block) - 1)


INDEX_SUFFIX = ".index"

_MAX_INDEX_BYTES = 16 * 2**20
_MAX_SHARDS = 1000
_MAX_AXES = 8
_KINDS = {1: torch.float32, 19: torch.float16, 14: torch.bfloat16}
"""Numbers of DataType, and what weights can be."""
_FLOAT32 = 1


class Entry(NamedTuple):
    """The index's entry for one tensor; its bytes are [offset, offset + size) of its shard."""

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
        self.index = prefix.with_name(prefix.name + INDEX_SUFFIX)
        try:
            raw = read_bytes(self.index, ModelFolderError, largest=_MAX_INDEX_BYTES)
            table = read_table(raw)
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
            raise damaged(str(error), self.index) from error
        self._shards = [
            prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{shards:05d}")
            for number in range(shards)
        ]
        self._check_places()

    def read(self, name: str) -> Tensor:
        """Return one tensor; `ModelFolderError` if it is of no type weights have, or damaged."""
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
            raise damaged(f"{name} does not have the size of its shape", self.index)
        raw = torch.empty(entry.size, dtype=torch.uint8)
        view = raw.numpy().data
        with open_regular(path) as file:
            file.seek(entry.offset)
            if file.readinto(view) < entry.size:
                raise ModelFolderError("became shorter while it was read", where=path)
        if masked(crc32c(view)) != entry.checksum:
            raise damaged(f"{name} does not have the checksum that was written with it", path)
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
                raise damaged(f"{name[:80]} is outside the data files", self.index)
        if sum(entry.size for entry in self.entries.values()) > sum(sizes):
            raise damaged("tensors overlap", self.index)


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
    write_parts(prefix.with_name(prefix.name + INDEX_SUFFIX), [written_table(entries)])


def is_checkpoint(index: Path) -> bool:
    """Return whether a file is the index of a TensorFlow checkpoint."""
    try:
        with open_regular(index) as file:
            file.seek(-min(END, os.fstat(file.fileno()).st_size), os.SEEK_END)
            return is_table(file.read(END))
    except OSError:
        return False


def _shards(header: bytes | None) -> int:
    """Return the number of files that hold the bytes."""
    if header is None:
        raise ValueError("it has no header")
    values = dict(fields(header))
    count, order = values.get(1, 0), values.get(2, 0)
    if order != 0:
        raise ValueError("its bytes are big-endian, which cannot be read")
    if not isinstance(count, int) or not 1 <= count <= _MAX_SHARDS:
        raise ValueError("it states an impossible number of files")
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
            if not isinstance(size, int) or size >= 2**48 or len(sizes) == _MAX_AXES:
                raise ValueError("a tensor of an impossible shape")
            sizes.append(size)
    return tuple(sizes)
