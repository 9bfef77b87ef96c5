"""Windows over texts whose tokens, or some of them, are asked one by one.

Windows overlap, and what stands in several is read in the one where it has most text on its
nearer side: there the model sees it best (the "max context" of Devlin et al.'s own code).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.batches.fitting import window_starts


@dataclass(frozen=True, kw_only=True)
class WindowedExamples(EncodedExamples):
    """Units that are windows: `rows` (units,) tells the row of each.

    `begins` (units,) is the token of its row's text that a window begins with, and `offsets`
    (units,) the place of that token in the sequence.
    """

    rows: NDArray[np.int64]
    begins: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def texts(self) -> int:
        """The number of rows that the windows belong to."""
        return len(np.unique(self.rows))

    @property
    def long_texts(self) -> int:
        """The number of rows in several windows."""
        return len(np.unique(self.rows[self.long]))

    @property
    def cut_texts(self) -> int:
        """The number of rows that lost tokens."""
        return len(np.unique(self.rows[self.cut]))


def window_of(length: int, room: int, overlap: int) -> tuple[list[int], NDArray[np.int64]]:
    """Return the start of a text's windows, and for each of its tokens (length,) the window to
    read.

    Windows of at most `room` tokens that share `overlap`.
    """
    starts = window_starts(length, room, min(overlap, room - 1))
    chosen = np.zeros(length, np.int64)
    widest = np.full(length, -1)
    for window, start in enumerate(starts):
        size = min(room, length - start)
        place = np.arange(size)
        # as in the original: the nearer side counts, and of equals the earlier window
        nearer = np.minimum(place, size - 1 - place)
        own = slice(start, start + size)
        better = nearer > widest[own]
        chosen[own][better] = window
        widest[own][better] = nearer[better]
    return starts, chosen
