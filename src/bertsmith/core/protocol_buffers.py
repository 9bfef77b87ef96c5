"""The wire format of protocol buffers, as far as SentencePiece and TensorFlow's checkpoints use it.

A message is a row of fields: a key of number and type, and a value (Protocol Buffers, Encoding).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

_VARINT, _LONG, _BYTES, _SHORT = 0, 1, 2, 5
_MAX_VARINT: Final = 10

Value = int | bytes


class DamagedMessage(ValueError):
    """Bytes that are no message."""


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the numbers and values of a message's fields; those of fixed size as their bytes.

    Nothing is allocated beyond the bytes given. Raises `DamagedMessage`.
    """
    offset = 0
    while offset < len(data):
        key, offset = read_varint(data, offset)
        kind = key & 7
        if kind == _VARINT:
            number, offset = read_varint(data, offset)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            size, offset = read_varint(data, offset)
        elif kind in (_LONG, _SHORT):
            size = 8 if kind == _LONG else 4
        else:
            raise DamagedMessage(f"a field of the unknown kind {kind}")
        if size > len(data) - offset:
            raise DamagedMessage("a field that is longer than its message")
        yield key >> 3, data[offset : offset + size]
        offset += size


def read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and where what follows begins."""
    if offset < len(data) and data[offset] < 0x80:
        return data[offset], offset + 1
    number = 0
    for count, byte in enumerate(data[offset : offset + _MAX_VARINT]):
        number |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return number % (1 << 64), offset + count + 1
    raise DamagedMessage("a number without an end")


def as_bytes(value: Value) -> bytes:
    """Return a value that must be bytes, a text or a message. Raises `DamagedMessage`."""
    if not isinstance(value, bytes):
        raise DamagedMessage("a number in place of a text")
    return value


def as_text(value: Value) -> str:
    """Return a value that must be a text. Raises `DamagedMessage`."""
    try:
        return as_bytes(value).decode()
    except UnicodeDecodeError as error:
        raise DamagedMessage("a text is not UTF-8") from error


def as_number(value: Value) -> int:
    """Return a value that must be a whole number, below zero too. Raises `DamagedMessage`."""
    if isinstance(value, bytes):
        raise DamagedMessage("a text in place of a number")
    return value - (1 << 64) if value >= 1 << 63 else value


def as_float(value: Value) -> float:
    """Return a value that must be a number of four bytes. Raises `DamagedMessage`."""
    data = as_bytes(value)
    if len(data) != 4:
        raise DamagedMessage("a score is not a number")
    return float(struct.unpack("<f", data)[0])


def number_field(number: int, value: int) -> bytes:
    """Return a field of a whole number."""
    return varint(number << 3 | _VARINT) + varint(value % (1 << 64))


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field of a text or a message."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def fixed_field(number: int, value: int) -> bytes:
    """Return a field of a whole number in four bytes."""
    return varint(number << 3 | _SHORT) + value.to_bytes(4, "little")


def float_field(number: int, value: float) -> bytes:
    """Return a field of a number in four bytes."""
    return varint(number << 3 | _SHORT) + struct.pack("<f", value)


def varint(number: int) -> bytes:
    """Return a number, at least 0, of seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))
