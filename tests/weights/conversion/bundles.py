"""Another writer of TensorFlow's checkpoints, as simple as can be: one block, nothing shared."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}


@functools.cache
def bitwise_crc32c(data: bytes) -> int:
    """The definition: a division of polynomials, bit by bit."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def mask(checksum: int) -> int:
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def number(value: int) -> bytes:
    parts = []
    while True:
        value, low = value >> 7, value & 127
        parts.append(low | (128 if value else 0))
        if not value:
            return bytes(parts)


def field(tag: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return number(tag * 8) + number(value)
    return number(tag * 8 + 2) + number(len(value)) + value


def block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A block with its trailer; every key whole."""
    body = b"".join(
        number(0) + number(len(key)) + number(len(value)) + key + value for key, value in entries
    )
    body += struct.pack("<II", 0, 1) + b"\0"
    return body + struct.pack("<I", mask(bitwise_crc32c(body)))


def table(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A sorted table of one block."""
    data = block(entries)
    bounds = block([(entries[-1][0], number(0) + number(len(data) - 5))])
    nothing = block([])
    footer = number(len(data)) + number(len(nothing) - 5)
    footer += number(len(data) + len(nothing)) + number(len(bounds) - 5)
    magic = struct.pack("<Q", 0xDB4775248B80FB57)
    return data + nothing + bounds + footer.ljust(40, b"\0") + magic


def entry(value: Any, **changes: int) -> bytes:  # noqa: ANN401
    """A BundleEntryProto."""
    raw = value.tobytes()
    said = {
        "kind": KINDS[str(value.dtype)],
        "size": len(raw),
        "checksum": mask(bitwise_crc32c(raw)),
        "offset": 0,
        "shard": 0,
    } | changes
    shape = b"".join(field(2, field(1, axis)) for axis in value.shape)
    return (
        field(1, said["kind"])
        + field(2, shape)
        + field(3, said["shard"])
        + field(4, said["offset"])
        + field(5, said["size"])
        + number(6 * 8 + 5)
        + struct.pack("<I", said["checksum"])
    )


def header(shards: int = 1, order: int = 0) -> bytes:
    """A BundleHeaderProto."""
    return field(1, shards) + field(2, order) + field(3, field(1, 1))


def write(prefix: Path, values: Mapping[str, Any], shards: int = 1) -> None:
    """A checkpoint of arrays, dealt out to some files."""
    parts = [bytearray() for _ in range(shards)]
    entries = [(b"", header(shards))]
    for place, (name, given) in enumerate(sorted(values.items())):
        value = np.ascontiguousarray(given).reshape(np.shape(given))
        shard = place % shards
        entries.append((name.encode(), entry(value, offset=len(parts[shard]), shard=shard)))
        parts[shard] += value.tobytes()
    for shard, part in enumerate(parts):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(part)
    prefix.with_name(prefix.name + ".index").write_bytes(table(entries))
