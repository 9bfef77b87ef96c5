"""What a corpus tells before any training: how often its tokens come, and next to which others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.store import TokenStore

# tokens to count at most, taken in stretches from all over the store; seconds, not minutes
_TOKENS = 16_000_000
_STRETCH = 250_000


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Counts over a corpus of `tokens` (vocabulary,), and of tokens by a neighbour.

    `contexts` (contexts,) are the commonest tokens; `near[d]` (vocabulary, contexts) counts how
    often a token has each of them d places after it, or before it where d is negative.
    """

    tokens: NDArray[np.int64]
    contexts: NDArray[np.int64]
    near: dict[int, NDArray[np.float32]]


def count_neighbours(
    store: TokenStore, vocabulary: int, contexts: int, places: Sequence[int]
) -> Neighbours:
    """Count, at some distances, the neighbours among the commonest tokens; pure, from the store.

    Of a large store, stretches all over it are read, 16 million tokens in all. What follows across
    the end of a document counts too: it is little.
    """
    ids = _sample(store)
    tokens = np.bincount(ids, minlength=vocabulary)
    common = np.argsort(-tokens, kind="stable")[:contexts]
    number = np.full(vocabulary, -1, np.int64)
    number[common] = np.arange(len(common))
    near = {}
    for place in places:
        later, earlier = ids[abs(place) :], ids[: -abs(place)]
        token, context = (earlier, later) if place > 0 else (later, earlier)
        column = number[context]
        kept = column >= 0
        cell = token[kept] * len(common) + column[kept]
        counts = np.bincount(cell, minlength=vocabulary * len(common))
        near[place] = counts.reshape(vocabulary, len(common)).astype(np.float32)
    return Neighbours(tokens, common, near)


def _sample(store: TokenStore) -> NDArray[np.int64]:
    """Ids of the whole store, or of stretches at even distances that begin where sentences do."""
    starts = store.document_starts()
    if store.tokens <= _TOKENS:
        ranges = list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))
    else:
        begins = np.linspace(0, store.tokens - _STRETCH, _TOKENS // _STRETCH).astype(np.int64)
        ranges = [part for begin in begins.tolist() for part in _parts(starts, begin)]
    return np.concatenate([store.read(start, end) for start, end in ranges]).astype(np.int64)


def _parts(starts: NDArray[np.int64], begin: int) -> list[tuple[int, int]]:
    """The parts of documents in a stretch, as a store reads one document at a time."""
    end = begin + _STRETCH
    inside = starts[(starts > begin) & (starts < end)].tolist()
    return list(zip([begin, *inside], [*inside, end], strict=True))
