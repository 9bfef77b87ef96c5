"""The most probable segmentation of a text into pieces with probabilities (Kudo 2018).

Equal to SentencePiece's, including the rounding of its sums: they have 32 bits and start at the
beginning of the text, so that in a long text nearly equal segmentations compare as equal.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SPACE = "\u2581"
"""The character that represents a blank in pieces."""

_UNKNOWN_PENALTY = 10.0
_LEAST_FLOAT = 2.0**-126
_PREFIX = 2


@dataclass(frozen=True, slots=True)
class Cutting:
    """The pieces of a text, their score, and the margin over the second-best segmentation."""

    pieces: tuple[str, ...]
    score: float
    margin: float


class Unigram:
    """Segments texts by the scores of pieces, which are logarithms of probabilities."""

    def __init__(
        self, pieces: Sequence[str], scores: Sequence[float], *, wanted: Collection[str] = ()
    ) -> None:
        """`pieces` are those a text may be split into; those in `wanted` are always split off."""
        self._scores = dict(zip(pieces, scores, strict=True))
        ordinary = [score for piece, score in self._scores.items() if piece not in wanted]
        best = max([_LEAST_FLOAT, *ordinary])
        self._unknown = _rounded(min(ordinary, default=0.0) - _UNKNOWN_PENALTY)
        for piece in wanted:
            self._scores[piece] = _rounded(len(piece.encode()) * best - 0.1)
        self._sizes = _sizes(pieces)

    def __contains__(self, piece: str) -> bool:
        return piece in self._scores

    def cut(self, text: str, *, rounded: bool = False) -> Cutting:
        """Return the best segmentation of a text, with each unknown character a separate piece.

        Its sums have 64 bits, or are `rounded` to 32 as SentencePiece's.
        """
        size = len(text)
        best = _Best([0.0] * (size + 1), [-1] * (size + 1), [-math.inf] * (size + 1))
        cell = array("f" if rounded else "d", (0.0,))
        scores, sizes = self._scores, self._sizes
        for start in range(size):
            here = best.sums[start]
            single = False
            for length in sizes.get(text[start : start + _PREFIX], (1,)):
                score = scores.get(text[start : start + length])
                # a text may end before a piece of this length does
                if score is None or start + length > size:
                    continue
                single = single or length == 1
                cell[0] = here + score
                best.offer(cell[0], start, start + length)
            if not single:
                cell[0] = here + self._unknown
                best.offer(cell[0], start, start + 1)
        return best.traced(text)


class _Best(NamedTuple):
    """For each end position, the best sum, the start of its last piece, and the second-best sum."""

    sums: list[float]
    starts: list[int]
    second: list[float]

    def offer(self, score: float, start: int, end: int) -> None:
        """Offer a piece for its end position; of equal scores the first is kept."""
        if self.starts[end] < 0:
            self.sums[end], self.starts[end] = score, start
        elif score > self.sums[end]:
            self.second[end], self.sums[end], self.starts[end] = self.sums[end], score, start
        elif score > self.second[end]:
            self.second[end] = score

    def traced(self, text: str) -> Cutting:
        """Return the segmentation of the whole text."""
        pieces: list[str] = []
        end, margin = len(text), math.inf
        while end > 0:
            margin = min(margin, self.sums[end] - self.second[end])
            pieces.append(text[self.starts[end] : end])
            end = self.starts[end]
        return Cutting(tuple(reversed(pieces)), self.sums[len(text)], margin)


def joined_unknowns(pieces: Iterable[str], known: Unigram) -> list[str]:
    """Merge adjacent unknown pieces."""
    merged: list[str] = []
    before = False
    for piece in pieces:
        unknown = piece not in known
        if unknown and before:
            merged[-1] += piece
        else:
            merged.append(piece)
        before = unknown
    return merged


def _rounded(value: float) -> float:
    return array("f", (value,))[0]


def _sizes(pieces: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of pieces by their first two characters, including single characters."""
    sizes: dict[str, set[int]] = {}
    for piece in pieces:
        sizes.setdefault(piece[:_PREFIX], {1}).add(len(piece))
    return {prefix: tuple(sorted(lengths)) for prefix, lengths in sizes.items()}
