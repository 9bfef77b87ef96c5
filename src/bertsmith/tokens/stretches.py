"""How often each stretch of characters occurs, for many words at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def frequent_lengths(
    words: Sequence[str], counts: Sequence[int], rarest: int
) -> tuple[bytes, list[int]]:
    """For every place in every word, the longest stretch from there that occurs `rarest` times.

    The places of all words end to end, and where each word begins. Stretches at the beginning of a
    word are counted apart from those that go on one.
    """
    sizes = np.fromiter(map(len, words), np.int64, len(words))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    codes = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
    place = np.arange(len(codes))
    left = np.repeat(offsets[1:], sizes) - place
    weights = np.repeat(np.asarray(counts, np.int64), sizes)
    hashes = np.zeros(len(codes), np.uint64)
    hashes[offsets[:-1]] = 1 << 32  # beyond any code point
    lengths = np.zeros(len(codes), np.uint8)
    length = 0
    while len(place):
        hashes = _mixed(hashes + codes[place + length])
        length += 1
        frequent = _totals(hashes, weights[place]) >= rarest
        lengths[place[frequent]] = length
        going_on = frequent & (left[place] > length)
        place, hashes = place[going_on], hashes[going_on]
    return lengths.tobytes(), offsets[:-1].tolist()


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele et al. 2014): 64 bits that collide no sooner than chance would."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _totals(hashes: NDArray[np.uint64], weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each entry the weight of all entries with its hash."""
    _, inverse = np.unique(hashes, return_inverse=True)
    totals = np.zeros(len(hashes), np.int64)
    np.add.at(totals, inverse, weights)
    return totals[inverse]
