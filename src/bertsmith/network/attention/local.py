"""Local attention on a processor: sequences of a packed batch cut into blocks of neighbours.

A sequence becomes blocks of queries; the keys of a block are its own tokens and those within the
window on either side (Beltagy et al. 2020, section 3.1). So the work grows with the length of a
sequence, not with its square. A block is at least as long as both sides of the window together, so
that no token is a key of more than two blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.network.attention.cpu import Group, Grouping, Numbers, Rows, at_once, filled, rounded

# of queries: shorter ones make products too small to be fast
_SHORTEST = 64


@dataclass(frozen=True, slots=True)
class _Stretches:
    """Tokens or queries of each block: where they begin, and how many."""

    starts: Numbers
    counts: Numbers

    def in_order(self, order: Numbers) -> _Stretches:
        return _Stretches(self.starts[order], self.counts[order])


def group_local(
    lengths: Sequence[int], heads: int, window: int, at: Tensor | None = None
) -> Grouping:
    """Group blocks of sequences of these lengths, a token seeing `window` others on either side.

    With `at`, some of the tokens in order, only these are queries.
    """
    places = None if at is None else at.cpu().numpy()
    queries, keys = _blocks(np.asarray(lengths, np.int64), window, places)
    wide = rounded(keys.counts)
    order = np.lexsort((queries.counts, wide))
    queries, keys, wide = queries.in_order(order), keys.in_order(order), wide[order]
    parts = list(_parts(queries.counts, wide, heads))
    # a group in which nothing is asked still has a row, so that no product is empty
    most = [max(1, int(queries.counts[begin:end].max())) for begin, end in parts]
    tall = np.repeat(most, [end - begin for begin, end in parts])
    of_queries, spare_queries = filled(queries.starts, queries.counts, tall)
    of_keys, spare_keys = filled(keys.starts, keys.counts, wide)
    query_tokens = of_queries if places is None else places[of_queries]
    groups, first_query, first_key = [], 0, 0
    for (begin, end), asked in zip(parts, most, strict=True):
        count, seen = end - begin, int(wide[begin])
        a = slice(first_query, first_query + count * asked)
        b = slice(first_key, first_key + count * seen)
        distance = query_tokens[a].reshape(count, asked, 1) - of_keys[b].reshape(count, 1, seen)
        unseen = (np.abs(distance) > window) | spare_keys[b].reshape(count, 1, seen)
        # nobody reads what a spare query sees, but it must see something
        unseen &= ~spare_queries[a].reshape(count, asked, 1)
        groups.append(Group(count, asked, seen, first_query, first_key, _hidden(unseen)))
        first_query, first_key = a.stop, b.stop
    total = sum(lengths)
    return Grouping(
        tuple(groups),
        _rows(of_queries, spare_queries, total if places is None else len(places)),
        _rows(of_keys, spare_keys, total),
    )


def _blocks(sizes: Numbers, window: int, places: Numbers | None) -> tuple[_Stretches, _Stretches]:
    """The queries and the keys of every block; queries by their number where they are `places`."""
    size = max(_SHORTEST, 2 * window)
    blocks = -(-sizes // size)
    owner = np.repeat(np.arange(len(sizes)), blocks)
    first = size * (np.arange(blocks.sum()) - np.repeat(np.cumsum(blocks) - blocks, blocks))
    last = np.minimum(first + size, sizes[owner])
    low, high = np.maximum(first - window, 0), np.minimum(last + window, sizes[owner])
    start = (np.cumsum(sizes) - sizes)[owner]
    keys = _Stretches(start + low, high - low)
    if places is None:
        return _Stretches(start + first, last - first), keys
    begin = np.searchsorted(places, start + first)
    return _Stretches(begin, np.searchsorted(places, start + last) - begin), keys


def _parts(tall: Numbers, wide: Numbers, heads: int) -> list[tuple[int, int]]:
    """Stretches of blocks of as many keys, none with more attention weights than are wanted."""
    edges = (np.flatnonzero(np.diff(wide)) + 1).tolist()
    parts = []
    for begin, end in zip([0, *edges], [*edges, len(wide)], strict=True):
        most = at_once(heads * int(wide[begin]) * max(1, int(tall[begin:end].max())))
        parts += [(at, min(at + most, end)) for at in range(begin, end, most)]
    return parts


def _hidden(unseen: NDArray[np.bool_]) -> Tensor | None:
    """Return the additive mask (count, heads, queries, keys), once if all blocks are alike."""
    if not unseen.any():
        return None
    alike = unseen[:1] if (unseen == unseen[:1]).all() else unseen
    hidden = torch.zeros(alike.shape).masked_fill_(torch.from_numpy(alike), -torch.inf)
    return hidden[:, None]


def _rows(take: Numbers, spare: NDArray[np.bool_], total: int) -> Rows:
    kept = np.flatnonzero(~spare)
    back = np.empty(total, np.int64)
    back[take[kept]] = kept
    others = kept[back[take[kept]] != kept]
    empty = torch.from_numpy(np.flatnonzero(spare)) if spare.any() else None
    again = None
    if len(others):
        again = torch.from_numpy(take[others]), torch.from_numpy(others)
    return Rows(torch.from_numpy(take), torch.from_numpy(back), empty, again)
