"""The head that does best at something, and what it scores where it was not chosen.

Counts are kept for both halves of a corpus: the best of many heads is chosen on the words that it
is scored on, and chance alone makes it look good. Chosen on one half and scored on the other, and
the other way round, it does not.
"""

from __future__ import annotations

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


def best_head(accuracy: NDArray[np.float64]) -> tuple[int, int]:
    """Return layer and head, from 1, with the highest share of (layers, heads)."""
    layer, head = np.unravel_index(accuracy.argmax(), accuracy.shape)
    return int(layer) + 1, int(head) + 1
