"""One text or a pair of texts as one sequence: [CLS] A [SEP] or [CLS] A [SEP] B [SEP]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Segments = NDArray[np.int8]


def encode_pair(
    first: NDArray[np.integer],
    second: NDArray[np.integer] | None,
    *,
    cls_id: int,
    sep_id: int,
    longest: int,
) -> tuple[Ids, Segments]:
    """Token ids and segment numbers, each (length,), of a text or a pair (Devlin et al. 2018).

    What exceeds `longest` tokens, special tokens included, is cut from the end of the text, or of
    the longer text of a pair, token by token, of the second where both are of one length.
    """
    kept_first, kept_second = kept(
        len(first), None if second is None else len(second), longest=longest
    )
    cls, sep = np.array([cls_id]), np.array([sep_id])
    parts = [cls, first[:kept_first], sep]
    if second is not None:
        parts += [second[:kept_second], sep]
    ids = np.concatenate(parts).astype(np.int32)
    segments = np.zeros(len(ids), np.int8)
    segments[kept_first + 2 :] = 1
    return ids, segments


def kept(first: int, second: int | None, *, longest: int) -> tuple[int, int]:
    """How many tokens of texts of these lengths fit into `longest`, special tokens included."""
    if second is None:
        assert longest >= 3
        return min(first, longest - 2), 0
    assert longest >= 5
    budget = longest - 3
    if first + second <= budget:
        return first, second
    kept_second = min(second, max(budget // 2, budget - first))
    return budget - kept_second, kept_second
