"""Files of sorted keys and values: the tables of LevelDB, which TensorFlow keeps its indices in.

A table is blocks, an index block with the last key of each and where it is, and a footer. In a
block each key says how much of the one before it begins with, so that little has to be stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bertsmith.protocol_buffers import read_varint, varint
from bertsmith.weights.conversion.checksum import crc32c, masked

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
END = len(_MAGIC)
"""Bytes that tell a table, at the end of the file."""
_FOOTER = 48
_TRAILER = 5
"""Bytes after a block: how it is compressed, and its checksum."""
_LONGEST_KEY = 512
_MOST_ENTRIES = 2**14
_WRITTEN_BLOCK = 16_384
_KEYS_A_RESTART = 16

_Handle = tuple[int, int]
"""Where a block is, and how long without its trailer."""


def is_table(end: bytes) -> bool:
    """Whether a file that ends like this can be a table."""
    return end.endswith(_MAGIC)


def read_table(data: bytes) -> dict[bytes, bytes]:
    """The entries of a table, sorted; `ValueError` if it is damaged.

    What is allocated is bounded by the bytes given, a key's length and a number of entries.
    """
    if len(data) < _FOOTER or not is_table(data):
        raise ValueError("no sorted table ends like this")
    footer = data[-_FOOTER:]
    _, at = _handle(footer, 0)  # of blocks about blocks, of which there are none
    index, _ = _handle(footer, at)
    found: dict[bytes, bytes] = {}
    last = b""
    for bound, place in _entries(_block(data, index)):
        for key, value in _entries(_block(data, _handle(place, 0)[0])):
            # also what keeps blocks from being read twice
            if found and key <= last:
                raise ValueError("the keys are out of order")
            if len(found) == _MOST_ENTRIES:
                raise ValueError(f"more than {_MOST_ENTRIES} entries")
            found[key], last = value, key
        if last > bound:
            raise ValueError("a block holds more than the index says")
    return found


def written_table(entries: Mapping[bytes, bytes]) -> bytes:
    """The bytes of a table with these entries."""
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
        raise ValueError("a block lies outside of the file")
    end = offset + size
    kind, checksum = data[end], int.from_bytes(data[end + 1 : end + _TRAILER], "little")
    if masked(crc32c(data[offset : end + 1])) != checksum:
        raise ValueError("a block has not the checksum that was written with it")
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
        if shared > len(key) or shared + fresh > _LONGEST_KEY or fresh + size > end - at:
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
