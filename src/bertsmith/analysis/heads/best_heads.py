"""The head that does best at something, and what it scores where it was not chosen.

Counts are kept for both halves of a corpus: the best of many heads is chosen on the words that it
is scored on, and chance alone makes it look good. Chosen on one half and scored on the other, and
the other way round, it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def held_out_share(hits: Counts, words: Counts) -> float:
    """Return the share that the best head of each half finds of the other; NaN with one half.

    `hits` are (halves, ...), one number a head, and `words` (halves,).
    """
    others = sum(hits[1 - half].flat[hits[half].argmax()] for half in (0, 1) if words[half])
    scored = sum(int(words[1 - half]) for half in (0, 1) if words[half])
    return float(others) / scored if scored else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShares:
    """The share of each head, `accuracy` (layers, heads), and that of the best `held_out`."""

    accuracy: NDArray[np.float64]
    held_out: float

    @property
    def best(self) -> tuple[int, int]:
        """Layer and head, from 1, with the highest share."""
        layer, head = np.unravel_index(self.accuracy.argmax(), self.accuracy.shape)
        return int(layer) + 1, int(head) + 1

    @property
    def best_accuracy(self) -> float:
        """The share of the best head."""
        return float(self.accuracy.max())
