"""How the sequences of a packed batch are put together for attention on a processor.

One sequence at a time, a small network waits for calls most of the time. So sequences become rows
of one array, a bin of them each: as many as fit (binning.py), none seeing the others, filled up to
a multiple of 32 tokens (at which torch's softmax and products run about twice as fast as beside it,
docs/log.md). Where all have one length, as most have in pre-training, nothing is filled up and
nothing moved. Where a token sees its neighbours only, local_grouping.py cuts the sequences into
blocks first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.layers.binning import Bins, Numbers, binned, rounded

# entries of attention weights at once: what the caches of a few cores hold
_ENTRIES = 2**21


@dataclass(frozen=True, slots=True)
class Rows:
    """Tokens put in rows, a number of rows a sequence.

    `take` (rows,) is the token of each row, the first where a row is spare; None
    where rows are the tokens as they stand. `back` (tokens,) is the row of each token. `spare`
    (rows,) marks rows without a token, None if there are none. A token in two rows is one of the
    first of `again`, its other row the second; None if no token is.
    """

    take: Tensor | None
    back: Tensor | None
    spare: Tensor | None
    again: tuple[Tensor, Tensor] | None = None

    def gather(self, packed: Tensor) -> Tensor:
        """(tokens, ...) to (rows, ...)."""
        return packed if self.take is None else packed.index_select(0, self.take)

    def gather_gradient(self, packed: Tensor) -> Tensor:
        """(tokens, ...) to (rows, ...), spare rows zero."""
        rows = self.gather(packed)
        return rows if self.spare is None else rows.index_fill(0, self.spare, 0)

    def scatter(self, rows: Tensor) -> Tensor:
        """(rows, ...) to (tokens, ...), the rows of one token added up."""
        if self.back is None:
            return rows
        packed = rows.index_select(0, self.back)
        if self.again is None:
            return packed
        tokens, others = self.again
        both = packed.index_select(0, tokens).add_(rows.index_select(0, others))
        return packed.index_copy_(0, tokens, both)

    def to(self, device: torch.device) -> Rows:
        """The same rows on another device."""
        take, back, spare = (
            None if each is None else each.to(device) for each in (self.take, self.back, self.spare)
        )
        again = None if self.again is None else (self.again[0].to(device), self.again[1].to(device))
        return Rows(take, back, spare, again)


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences computed at once: `count` of them, `queries` and `keys` rows each.

    `first_query` and `first_key` are where its rows begin; `hidden`, of a shape that spreads to
    (count, heads, queries, keys), is minus infinity where a query does not see a key, as it sees no
    spare row, else zero; None where each sees all.
    """

    count: int
    queries: int
    keys: int
    first_query: int
    first_key: int
    hidden: Tensor | None

    def of_queries(self, rows: Tensor) -> Tensor:
        """The part of this group, (count, heads, queries, head), of (rows, heads, head)."""
        return _part(rows, self.first_query, self.count, self.queries)

    def of_keys(self, rows: Tensor) -> Tensor:
        """The part of this group, (count, heads, keys, head), of (rows, heads, head)."""
        return _part(rows, self.first_key, self.count, self.keys)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups of a batch, and the rows of its queries and of its keys."""

    groups: tuple[Group, ...]
    queries: Rows
    keys: Rows

    def to(self, device: torch.device) -> Grouping:
        """The same grouping on another device."""
        groups = tuple(
            each if each.hidden is None else replace(each, hidden=each.hidden.to(device))
            for each in self.groups
        )
        return Grouping(groups, self.queries.to(device), self.keys.to(device))


def group(lengths: Sequence[int], heads: int, asked: Sequence[int] | None = None) -> Grouping:
    """Group sequences of these lengths; `asked` are the queries of each, None for every token."""
    sizes = np.asarray(lengths, np.int64)
    if (sizes == rounded(sizes)).all() and (sizes == sizes[0]).all():
        bins = [Bins(int(sizes[0]), np.arange(len(sizes)), np.arange(len(sizes)))]
    else:
        bins = binned(sizes, heads)
    parts = [part for each in bins for part in each.parts(at_once(heads * each.width**2))]
    keys = [part.stretches(sizes, part.width) for part in parts]
    queries = keys
    if asked is not None:
        counts = np.asarray(asked, np.int64)
        # a group in which nothing is asked still has a row, so that no product is empty
        queries = [part.stretches(counts, max(1, part.most(counts))) for part in parts]
    groups, first_query, first_key = [], 0, 0
    for part, of_queries, of_keys in zip(parts, queries, keys, strict=True):
        tall = int(of_queries.sum()) // part.count
        hidden = _hidden(part, of_queries, of_keys, sizes)
        groups.append(Group(part.count, tall, part.width, first_query, first_key, hidden))
        first_query += part.count * tall
        first_key += part.count * part.width
    order = np.concatenate([part.sequences for part in parts])
    key_rows = _rows(sizes, order, np.concatenate(keys))
    query_rows = key_rows if asked is None else _rows(counts, order, np.concatenate(queries))
    return Grouping(tuple(groups), query_rows, key_rows)


def at_once(entries: int) -> int:
    """How many sequences of so many attention weights are computed at once."""
    return max(1, _ENTRIES // entries)


def filled(starts: Numbers, counts: Numbers, rows: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    """The token of each row, and which are spare, of stretches of `counts` tokens from `starts` on.

    Each stretch has as many rows as `rows` says; a spare one holds token 0.
    """
    column = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    spare = column >= np.repeat(counts, rows)
    return np.where(spare, 0, np.repeat(starts, rows) + column), spare


def _part(rows: Tensor, first: int, count: int, each: int) -> Tensor:
    return rows[first : first + count * each].view(count, each, *rows.shape[1:]).transpose(1, 2)


def _hidden(part: Bins, of_queries: Numbers, of_keys: Numbers, sizes: Numbers) -> Tensor | None:
    """What is added to the scores of a group: minus infinity at spare keys and at those of others.

    A spare query sees what the last sequence of its bin does: nobody reads it, but it must see
    something.
    """
    spare = filled(np.zeros_like(of_keys), sizes[part.sequences], of_keys)[1]
    unseen = spare.reshape(part.count, 1, 1, part.width)
    if part.count < len(part.sequences):
        asking, asked = (
            np.repeat(part.sequences, rows).reshape(part.count, -1)
            for rows in (of_queries, of_keys)
        )
        unseen = unseen | (asking[:, None, :, None] != asked[:, None, None, :])
    if not unseen.any():
        return None
    return torch.zeros(unseen.shape).masked_fill_(torch.from_numpy(unseen), -torch.inf)


def _rows(counts: Numbers, order: Numbers, rows: Numbers) -> Rows:
    """Tokens by sequence in an order, filled up to `rows` of each."""
    starts = (np.cumsum(counts) - counts)[order]
    kept = counts[order]
    if np.array_equal(kept, rows) and np.array_equal(order, np.arange(len(order))):
        return Rows(None, None, None)
    take, spare = filled(starts, kept, rows)
    back = np.empty(counts.sum(), np.int64)
    back[take[~spare]] = np.flatnonzero(~spare)
    empty = torch.from_numpy(np.flatnonzero(spare)) if spare.any() else None
    return Rows(torch.from_numpy(take), torch.from_numpy(back), empty)
