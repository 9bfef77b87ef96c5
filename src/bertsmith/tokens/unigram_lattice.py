"""All ways to cut many words at once: what pieces are expected, and what would do in their place.

A word is a row of places; a piece that matches is an edge between two of them. Sums over all paths
go through the words in step, from one place to the next (Kudo 2018, section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]

LONGEST_PIECE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Substrings:
    """The frequent stretches of some words: `pieces` by number, with how often each occurs.

    `at` (lengths, places): the number of the stretch of each length that begins at each place of
    the words end to end, -1 for none; row 0 is of length 1. `begins` (words,) are their first
    places, and one more; `first` (pieces,) is a place of each piece.
    """

    pieces: list[str]
    counts: Numbers
    at: NDArray[np.int32]
    begins: Integers
    first: Integers


def frequent_substrings(
    words: Sequence[str], counts: Sequence[int], *, rarest: int, most: int
) -> Substrings:
    """All single characters, and of longer stretches those that make up most of the text.

    They occur `rarest` times; the `most` of them with the largest product of length and count.
    """
    text = "".join(words)
    sizes = np.fromiter(map(len, words), np.int64, len(words))
    begins = np.concatenate([[0], np.cumsum(sizes)])
    left = np.repeat(begins[1:], sizes) - np.arange(len(text))
    weights = np.repeat(np.asarray(counts, np.float64), sizes)
    _, codes = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True)
    at = np.full((LONGEST_PIECE, len(text)), -1, np.int32)
    found_counts: list[Numbers] = []
    found_first: list[Integers] = []
    places, keys, known = np.arange(len(text)), codes.astype(np.int64), 0
    for length in range(1, LONGEST_PIECE + 1):
        _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
        totals = np.bincount(numbers, weights[places]).astype(np.float64, copy=False)
        kept = totals >= (rarest if length > 1 else 0)
        renumbered = np.where(kept, np.cumsum(kept) - 1 + known, -1)[numbers]
        at[length - 1, places] = renumbered
        found_counts.append(totals[kept])
        found_first.append(places[first[kept]])
        known += int(kept.sum())
        going_on = (renumbered >= 0) & (left[places] > length)
        places = places[going_on]
        keys = renumbered[going_on] * (int(codes.max()) + 1) + codes[places + length]
        if not len(places):
            break
    lengths = np.repeat(np.arange(1, len(found_first) + 1), list(map(len, found_first)))
    first, totals = np.concatenate(found_first), np.concatenate(found_counts)
    order = np.lexsort((first, -lengths * totals, lengths > 1))
    chosen = order[: int((lengths == 1).sum()) + most]
    numbers = np.full(len(first) + 1, -1, np.int32)
    numbers[chosen] = np.arange(len(chosen))
    return Substrings(
        pieces=[text[first[n] : first[n] + lengths[n]] for n in chosen.tolist()],
        counts=totals[chosen],
        at=numbers[at].astype(np.int32, copy=False),
        begins=begins,
        first=first[chosen],
    )


class Lattice:
    """The edges of some stretches of the words, in the order of their ends and of their starts."""

    def __init__(self, found: Substrings, starts: Integers, sizes: Integers) -> None:
        """Stretches that begin at these places of the words."""
        nodes = np.concatenate([[0], np.cumsum(sizes + 1)])
        inside = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        places = np.repeat(starts, sizes) + inside
        left = np.repeat(sizes, sizes) - inside
        rows: list[tuple[NDArray[np.int32], ...]] = []
        for length in range(1, min(LONGEST_PIECE, int(sizes.max(initial=0))) + 1):
            pieces = found.at[length - 1, places]
            kept = (pieces >= 0) & (left >= length)
            node = (np.repeat(nodes[:-1], sizes) + inside)[kept]
            rows.append(
                tuple(
                    part.astype(np.int32)
                    for part in (
                        node,
                        node + length,
                        inside[kept],
                        inside[kept] + length,
                        pieces[kept],
                    )
                )
            )
        parts = [np.concatenate(part) for part in zip(*rows, strict=True)]
        self.nodes = int(nodes[-1])
        self.first, self.last = nodes[:-1], nodes[1:] - 1
        self.start, self.end, self._from, self._to, self.piece = parts
        self.owner = np.repeat(np.arange(len(sizes)), sizes + 1)

    def without(self, gone: NDArray[np.bool_]) -> None:
        """Take out the edges of the pieces (pieces,) that are gone."""
        self._keep(~gone[self.piece])

    def without_whole(self) -> None:
        """Take out the edges that are the whole of stretch i and piece i."""
        self._keep(self.piece != self.owner[self.start])

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        for name in ("start", "end", "_from", "_to", "piece"):
            setattr(self, name, getattr(self, name)[kept])

    def expected(self, shares: Numbers, weights: Numbers) -> Numbers:
        """How often each piece is expected, over all cuttings of all stretches."""
        chance = shares[self.piece]
        forward, backward = np.zeros(self.nodes), np.zeros(self.nodes)
        forward[self.first] = backward[self.last] = 1
        for edges in _levels(self._to):
            step = forward[self.start[edges]] * chance[edges]
            np.add.at(forward, self.end[edges], step)
        for edges in reversed(_levels(self._from)):
            step = backward[self.end[edges]] * chance[edges]
            np.add.at(backward, self.start[edges], step)
        each = (weights / forward[self.last])[self.owner[self.start]]
        each = each * forward[self.start] * chance * backward[self.end]
        return np.bincount(self.piece, each, len(shares)).astype(np.float64, copy=False)

    def best(self, scores: Numbers) -> Numbers:
        """The score of the best cutting of each stretch."""
        sums = np.full(self.nodes, -np.inf)
        sums[self.first] = 0
        for edges in _levels(self._to):
            step = sums[self.start[edges]] + scores[self.piece[edges]]
            np.maximum.at(sums, self.end[edges], step)
        found: Numbers = sums[self.last]
        return found


def _levels(places: NDArray[np.int32]) -> list[Integers]:
    """The edges of each place within a word, in their order."""
    order = np.argsort(places, kind="stable")
    bounds = np.flatnonzero(np.diff(places[order])) + 1
    return np.split(order, bounds)
