"""Random numbers as a pure function of (seed, epoch, index): nothing to carry, nothing to restore.

A key names a stream; the n-th number of a stream is SplitMix64 (Steele, Lea & Flood 2014) started
at the key and read at n, so any number of any stream is had at once and in any order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def bits(key: Bits | np.uint64, counter: NDArray[np.integer] | int) -> Bits:
    """64 random bits for each key and counter, broadcast against each other."""
    with np.errstate(over="ignore"):
        mixed = np.asarray(key) + (np.asarray(counter).astype(np.uint64) + np.uint64(1)) * _STEP
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def stream(seed: int, *parts: int) -> np.uint64:
    """The key of a stream named by numbers: a seed, an epoch, a purpose, an index."""
    key = np.uint64(seed % 2**64)
    for part in parts:
        key = np.uint64(bits(key, part)[()])
    return key


def uniform(key: Bits | np.uint64, counter: NDArray[np.integer] | int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) with 53 bits."""
    return np.asarray((bits(key, counter) >> np.uint64(11)) * 2.0**-53)


def below(
    limit: NDArray[np.integer] | int, key: Bits | np.uint64, counter: NDArray[np.integer] | int
) -> NDArray[np.int64]:
    """Integers in [0, limit); biased by less than limit / 2^64."""
    drawn = bits(key, counter) % np.asarray(limit).astype(np.uint64)
    return np.asarray(drawn, np.int64)


def permuted(position: NDArray[np.integer], size: int, key: np.uint64) -> NDArray[np.int64]:
    """Where a random permutation of range(size) sends each position, without writing it down.

    A Feistel network over the next even number of bits (Luby & Rackoff 1988), walked on until it
    lands below `size`; O(1) a position, whatever the size.
    """
    half = np.uint64(max(1, (max(size - 1, 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    rounds = bits(key, np.arange(6))
    value = np.array(position, np.uint64)
    outside = np.ones(value.shape, bool)
    while outside.any():
        left, right = value[outside] >> half, value[outside] & mask
        for turn in rounds:
            left, right = right, left ^ (bits(turn, right) & mask)
        value[outside] = (left << half) | right
        outside = value >= size
    return value.astype(np.int64)
