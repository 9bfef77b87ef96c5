"""Which sequences of a packed batch share a row of attention on a processor.

A call of torch costs a small network as much as its work, and attention takes some forty of them
for every group of rows of one length. So short sequences lie behind one another in rows as long as
the long ones need, and there are few groups (docs/log.md); what a row's sequences see of each other
is hidden. It is the packing of Krell et al. (2021), within a batch that is packed already.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# what a further group costs, in attention weights computed forward and backward (docs/log.md)
_GROUP = 2**18

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bins:
    """Rows of `width` tokens: the `sequences` in them, bin by bin, and the `bin` of each."""

    width: int
    sequences: Numbers
    bin: Numbers

    @property
    def count(self) -> int:
        """How many bins there are."""
        return int(self.bin[-1]) + 1

    def parts(self, most: int) -> Iterator[Bins]:
        """The same bins, at most so many at once."""
        for first in range(0, self.count, most):
            begin, end = np.searchsorted(self.bin, [first, first + most])
            yield Bins(self.width, self.sequences[begin:end], self.bin[begin:end] - first)

    def most(self, counts: Numbers) -> int:
        """The largest sum over a bin of what is counted by sequence of the batch."""
        return int(np.bincount(self.bin, counts[self.sequences]).max())

    def stretches(self, counts: Numbers, rows: int) -> Numbers:
        """The rows of each sequence where a bin has so many: the last of it takes what is left."""
        own = counts[self.sequences]
        last = np.append(self.bin[1:] != self.bin[:-1], True)
        filled = np.bincount(self.bin, own).astype(np.int64)
        return own + np.where(last, rows - filled[self.bin], 0)


def binned(sizes: Numbers, heads: int) -> list[Bins]:
    """Sequences of these lengths in bins of few widths, at the least cost found."""
    wide = rounded(sizes)
    widths = np.unique(wide)
    # the cheapest way for all sequences up to a width: its cost, and its bins
    best: list[tuple[float, list[Bins]]] = [(0.0, [])]
    for end, width in enumerate(widths.tolist(), 1):
        ways = []
        for begin in range(end):
            inside = np.flatnonzero((wide >= widths[begin]) & (wide <= width))
            bins = _packed(sizes, inside, width)
            cost, before = best[begin]
            ways.append((cost + _GROUP + heads * bins.count * width**2, [*before, bins]))
        best.append(min(ways, key=lambda way: way[0]))
    return best[-1][1]


def rounded(lengths: Numbers) -> Numbers:
    """Lengths rounded up to multiples of 32, long ones to steps of about an eighth."""
    step = np.maximum(32, 2 ** np.floor(np.log2(np.maximum(lengths, 4)) - 2).astype(np.int64))
    return np.asarray(-(-lengths // step) * step)


def _packed(sizes: Numbers, inside: Numbers, width: int) -> Bins:
    """Sequences in bins, longest first, each where it leaves the least room (best fit)."""
    room: list[tuple[int, int]] = []
    bins: list[list[int]] = []
    for sequence in inside[np.argsort(-sizes[inside], kind="stable")].tolist():
        size = int(sizes[sequence])
        place = bisect_left(room, (size, 0))
        if place < len(room):
            left, number = room.pop(place)
        else:
            left, number = width, len(bins)
            bins.append([])
        bins[number].append(sequence)
        insort(room, (left - size, number))
    counts = [len(each) for each in bins]
    sequences = np.array([sequence for each in bins for sequence in each], np.int64)
    return Bins(width, sequences, np.repeat(np.arange(len(bins)), counts))
