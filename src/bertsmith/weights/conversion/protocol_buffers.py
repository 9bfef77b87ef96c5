"""The wire format of protocol buffers, as far as TensorFlow's checkpoints use it."""

from __future__ import annotations

from collections.abc import Iterator

Field = tuple[int, int | bytes]
"""Its number, and its value: an integer, or the bytes of a message, a string or packed values."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_fields(message: bytes) -> Iterator[Field]:
    """The fields of a message, in their order; `ValueError` if it is none."""
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = read_varint(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = read_varint(message, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if size > len(message) - at:
            raise ValueError("a field that is longer than its message")
        raw, at = message[at : at + size], at + size
        yield number, raw if kind == _BYTES else int.from_bytes(raw, "little")


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, lowest first, and where what follows begins."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number without an end")


def varint(value: int) -> bytes:
    """A number, at least 0, of seven bits a byte, lowest first."""
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def varint_field(number: int, value: int) -> bytes:
    """A field that holds an integer; none at all for 0, which is what is taken for none."""
    return varint(number << 3 | _VARINT) + varint(value) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds a message or a string."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def fixed32_field(number: int, value: int) -> bytes:
    """A field that holds an integer in four bytes."""
    return varint(number << 3 | _FIXED32) + value.to_bytes(4, "little")
