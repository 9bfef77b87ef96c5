"""CRC-32C, the checksum of TensorFlow's files (Castagnoli's polynomial), fast enough for weights.

The checksum of a text is linear in its bits. So a long one is cut into lanes of equal length whose
checksums grow side by side, and neighbours are joined: the left one as if zeros followed it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_MASK = 0xA282EAD8
_LANE = 2048
"""Bytes of a lane."""
_MOST_LANES = 4096

_Words = NDArray[np.uint32]


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of some bytes."""
    state, begin = _ONES, 0
    while lanes := min((len(data) - begin) // _LANE, _MOST_LANES):
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
    """The register after some text of whole lanes, from the one before it."""
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
    """A matrix of bits, one word a column, times every value."""
    result = np.zeros_like(values)
    for bit in range(32):
        result ^= np.where(values >> np.uint32(bit) & 1, matrix[bit], np.uint32(0))
    return result


@cache
def _bytewise() -> list[int]:
    """What each byte does to a register."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return table


@cache
def _pairwise() -> _Words:
    """What each two bytes do to a register."""
    single = np.array(_bytewise(), dtype=np.uint32)
    once = single[np.arange(1 << 16) & 0xFF] ^ (np.arange(1 << 16, dtype=np.uint32) >> 8)
    return np.asarray(single[once & 0xFF] ^ (once >> 8), dtype=np.uint32)


@cache
def _shift() -> _Words:
    """What a lane of zeros does to a register."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    single = np.array(_bytewise(), dtype=np.uint32)
    matrix = np.asarray(single[bits & 0xFF] ^ (bits >> 8), dtype=np.uint32)
    for _ in range(_LANE.bit_length() - 1):
        matrix = _applied(matrix, matrix)
    return matrix
