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


class Damaged(ValueError):
    """Bytes that are no message."""


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """The numbers and values of a message's fields; those of fixed size as their bytes.

    Nothing is allocated beyond the bytes given. Raises `Damaged`.
    """
    place = 0
    while place < len(data):
        key, place = read_varint(data, place)
        kind = key & 7
        if kind == _VARINT:
            number, place = read_varint(data, place)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            size, place = read_varint(data, place)
        elif kind in (_LONG, _SHORT):
            size = 8 if kind == _LONG else 4
        else:
            raise Damaged(f"a field of the unknown kind {kind}")
        if size > len(data) - place:
            raise Damaged("a field that is longer than its message")
        yield key >> 3, data[place : place + size]
        place += size


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where what follows begins."""
    number = 0
    for count, byte in enumerate(data[place : place + _MAX_VARINT]):
        number |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return number % (1 << 64), place + count + 1
    raise Damaged("a number without an end")


def as_bytes(value: Value) -> bytes:
    """A value that must be bytes, a text or a message. Raises `Damaged`."""
    if not isinstance(value, bytes):
        raise Damaged("a number where a text is to be")
    return value


def as_text(value: Value) -> str:
    """A value that must be a text. Raises `Damaged`."""
    try:
        return as_bytes(value).decode()
    except UnicodeDecodeError as error:
        raise Damaged("a text is not UTF-8") from error


def as_number(value: Value) -> int:
    """A value that must be a whole number, below zero too. Raises `Damaged`."""
    if isinstance(value, bytes):
        raise Damaged("a text where a number is to be")
    return value - (1 << 64) if value >= 1 << 63 else value


def as_float(value: Value) -> float:
    """A value that must be a number of four bytes. Raises `Damaged`."""
    data = as_bytes(value)
    if len(data) != 4:
        raise Damaged("a score is no number")
    return float(struct.unpack("<f", data)[0])


def number_field(number: int, value: int) -> bytes:
    """A field of a whole number."""
    return varint(number << 3 | _VARINT) + varint(value % (1 << 64))


def bytes_field(number: int, value: bytes) -> bytes:
    """A field of a text or a message."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def fixed_field(number: int, value: int) -> bytes:
    """A field of a whole number in four bytes."""
    return varint(number << 3 | _SHORT) + value.to_bytes(4, "little")


def float_field(number: int, value: float) -> bytes:
    """A field of a number in four bytes."""
    return varint(number << 3 | _SHORT) + struct.pack("<f", value)


def varint(number: int) -> bytes:
    """A number, at least 0, of seven bits a byte, the lowest first."""
    done = bytearray()
    while number >= 0x80:
        done.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*done, number))
