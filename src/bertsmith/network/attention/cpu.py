"""Attention on a processor: the sequences of a packed batch grouped into dense blocks.

One sequence at a time, a small network waits for calls most of the time. So sequences become rows
of one array, a bin of them each: as many as fit (`binned`), none seeing the others, filled up to
a multiple of 32 tokens (at which torch's softmax and products run about twice as fast as beside it,
docs/experiments/attention.md). Where all have one length, as most have in pre-training, nothing is
filled up and nothing moved. Where a token sees its neighbours only, `layout` cuts the sequences
into blocks first.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertsmith.network.dropout import apply_mask, apply_mask_, dropout_mask, dropout_scale

# what a further group costs, in attention weights computed forward and backward: measured, see
# docs/experiments/attention.md
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
        """The number of bins."""
        return int(self.bin[-1]) + 1

    def parts(self, max_bins: int) -> Iterator[Bins]:
        """Yield the same bins, at most `max_bins` at once."""
        for first in range(0, self.count, max_bins):
            begin, end = np.searchsorted(self.bin, [first, first + max_bins])
            yield Bins(self.width, self.sequences[begin:end], self.bin[begin:end] - first)

    def largest_sum(self, counts: Numbers) -> int:
        """Return the largest sum over a bin of what is counted by sequence of the batch."""
        return int(np.bincount(self.bin, counts[self.sequences]).max())

    def rows_per_sequence(self, counts: Numbers, rows: int) -> Numbers:
        """Return the rows of each sequence in a bin: the last takes the remainder."""
        own_counts = counts[self.sequences]
        last = np.append(self.bin[1:] != self.bin[:-1], True)
        pad_rows = np.bincount(self.bin, own_counts).astype(np.int64)
        return own_counts + np.where(last, rows - pad_rows[self.bin], 0)


def binned(sizes: Numbers, heads: int) -> list[Bins]:
    """Return sequences of these lengths in bins of few widths, at the least cost found."""
    wide = rounded(sizes)
    widths = np.unique(wide)
    # the cheapest way for all sequences up to a width: its cost, and its bins
    best: list[tuple[float, list[Bins]]] = [(0.0, [])]
    for end, width in enumerate(widths.tolist(), 1):
        candidates = []
        for begin in range(end):
            inside = np.flatnonzero((wide >= widths[begin]) & (wide <= width))
            bins = _packed(sizes, inside, width)
            cost, before = best[begin]
            candidates.append((cost + _GROUP + heads * bins.count * width**2, [*before, bins]))
        best.append(min(candidates, key=lambda way: way[0]))
    return best[-1][1]


def rounded(lengths: Numbers) -> Numbers:
    """Return lengths rounded up to multiples of 32, long ones to steps of about an eighth."""
    step = np.maximum(32, 2 ** np.floor(np.log2(np.maximum(lengths, 4)) - 2).astype(np.int64))
    return np.asarray(-(-lengths // step) * step)


def _packed(sizes: Numbers, inside: Numbers, width: int) -> Bins:
    """Return sequences in bins, longest first, each where it leaves the least room (best fit)."""
    remaining_rows: list[tuple[int, int]] = []
    bins: list[list[int]] = []
    for sequence in inside[np.argsort(-sizes[inside], kind="stable")].tolist():
        size = int(sizes[sequence])
        index = bisect_left(remaining_rows, (size, 0))
        if index < len(remaining_rows):
            remaining, number = remaining_rows.pop(index)
        else:
            remaining, number = width, len(bins)
            bins.append([])
        bins[number].append(sequence)
        insort(remaining_rows, (remaining - size, number))
    counts = [len(item) for item in bins]
    sequences = np.array([sequence for item in bins for sequence in item], np.int64)
    return Bins(width, sequences, np.repeat(np.arange(len(bins)), counts))


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
        """Return the same rows on another device."""
        take, back, spare = (
            None if index is None else index.to(device)
            for index in (self.take, self.back, self.spare)
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
        """Return the part of this group, (count, heads, queries, head), of (rows, heads, head)."""
        return _part(rows, self.first_query, self.count, self.queries)

    def of_keys(self, rows: Tensor) -> Tensor:
        """Return the part of this group, (count, heads, keys, head), of (rows, heads, head)."""
        return _part(rows, self.first_key, self.count, self.keys)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups of a batch, and the rows of its queries and of its keys."""

    groups: tuple[Group, ...]
    queries: Rows
    keys: Rows

    def to(self, device: torch.device) -> Grouping:
        """Return the same grouping on another device."""
        groups = tuple(
            item if item.hidden is None else replace(item, hidden=item.hidden.to(device))
            for item in self.groups
        )
        return Grouping(groups, self.queries.to(device), self.keys.to(device))


def group(
    lengths: Sequence[int], heads: int, query_counts: Sequence[int] | None = None
) -> Grouping:
    """Group sequences of these lengths, with `query_counts` queries each, None for every token."""
    sizes = np.asarray(lengths, np.int64)
    if (sizes == rounded(sizes)).all() and (sizes == sizes[0]).all():
        bins = [Bins(int(sizes[0]), np.arange(len(sizes)), np.arange(len(sizes)))]
    else:
        bins = binned(sizes, heads)
    parts = [part for item in bins for part in item.parts(sequences_at_once(heads * item.width**2))]
    keys = [part.rows_per_sequence(sizes, part.width) for part in parts]
    queries = keys
    if query_counts is not None:
        counts = np.asarray(query_counts, np.int64)
        # a group without queries still has a row, so that no product is empty
        queries = [
            part.rows_per_sequence(counts, max(1, part.largest_sum(counts))) for part in parts
        ]
    groups, first_query, first_key = [], 0, 0
    for part, of_queries, of_keys in zip(parts, queries, keys, strict=True):
        tall = int(of_queries.sum()) // part.count
        hidden = _hidden(part, of_queries, of_keys, sizes)
        groups.append(Group(part.count, tall, part.width, first_query, first_key, hidden))
        first_query += part.count * tall
        first_key += part.count * part.width
    order = np.concatenate([part.sequences for part in parts])
    key_rows = _rows(sizes, order, np.concatenate(keys))
    query_rows = key_rows if query_counts is None else _rows(counts, order, np.concatenate(queries))
    return Grouping(tuple(groups), query_rows, key_rows)


def sequences_at_once(entries: int) -> int:
    """Return the number of sequences to compute at once, of `entries` attention weights each."""
    return max(1, _ENTRIES // entries)


def pad_rows(starts: Numbers, counts: Numbers, rows: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return the token of each row and which are padding, of `counts` tokens from `starts` on.

    Each stretch has as many rows as `rows` says; a spare one holds token 0.
    """
    column = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    spare = column >= np.repeat(counts, rows)
    return np.where(spare, 0, np.repeat(starts, rows) + column), spare


def _part(rows: Tensor, first: int, count: int, size: int) -> Tensor:
    return rows[first : first + count * size].view(count, size, *rows.shape[1:]).transpose(1, 2)


def _hidden(part: Bins, of_queries: Numbers, of_keys: Numbers, sizes: Numbers) -> Tensor | None:
    """Return the additive mask of a group: minus infinity at padding keys and other sequences'
    keys.

    A spare query sees what the last sequence of its bin does: its output is unused, but it must see
    something.
    """
    spare = pad_rows(np.zeros_like(of_keys), sizes[part.sequences], of_keys)[1]
    unseen = spare.reshape(part.count, 1, 1, part.width)
    if part.count < len(part.sequences):
        asking, query_owners = (
            np.repeat(part.sequences, rows).reshape(part.count, -1)
            for rows in (of_queries, of_keys)
        )
        unseen = unseen | (asking[:, None, :, None] != query_owners[:, None, None, :])
    if not unseen.any():
        return None
    return torch.zeros(unseen.shape).masked_fill_(torch.from_numpy(unseen), -torch.inf)


def _rows(counts: Numbers, order: Numbers, rows: Numbers) -> Rows:
    """Return tokens by sequence in an order, filled up to `rows` of each."""
    starts = (np.cumsum(counts) - counts)[order]
    ordered_counts = counts[order]
    if np.array_equal(ordered_counts, rows) and np.array_equal(order, np.arange(len(order))):
        return Rows(None, None, None)
    return rows_of(*pad_rows(starts, ordered_counts, rows), int(counts.sum()))


def rows_of(take: Numbers, spare: NDArray[np.bool_], total: int) -> Rows:
    """Return rows (rows,) of `total` tokens, given the token of each and which rows are spare."""
    real_rows = np.flatnonzero(~spare)
    back = np.empty(total, np.int64)
    back[take[real_rows]] = real_rows
    others = real_rows[back[take[real_rows]] != real_rows]
    empty = torch.from_numpy(np.flatnonzero(spare)) if spare.any() else None
    again = None
    if len(others):
        again = torch.from_numpy(take[others]), torch.from_numpy(others)
    return Rows(torch.from_numpy(take), torch.from_numpy(back), empty, again)


class PackedAttention(torch.autograd.Function):
    """Scaled dot-product attention by groups on a processor, weights kept for the backward pass.

    `query` is (queries, heads, head), `key` and `value` are (tokens, heads, head).
    """

    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401
        query: Tensor,
        key: Tensor,
        value: Tensor,
        grouping: Grouping,
        dropout: float,
        causal: bool,
    ) -> Tensor:
        """(queries, heads, head)."""
        context.scale = 1 / math.sqrt(query.shape[-1])
        context.grouping, context.dropout, context.shape = grouping, dropout, query.shape
        queries = grouping.queries.gather(query)
        keys, values = grouping.keys.gather(key), grouping.keys.gather(value)
        attended = torch.empty_like(queries, memory_format=torch.contiguous_format)
        saved: list[Tensor] = []
        with torch.autocast("cpu", enabled=False):
            for group in grouping.groups:
                q = _copied(group.of_queries(queries)).mul_(context.scale)
                k, v = (_copied(group.of_keys(tensor)) for tensor in (keys, values))
                weight = _weights(q, k, group, causal)
                saved += [q, k, v, weight]
                if dropout:
                    saved.append(dropout_mask(weight, dropout))
                    weight = apply_mask(weight, saved[-1])
                out = torch.bmm(weight.flatten(0, 1), v.flatten(0, 1))
                group.of_queries(attended).copy_(out.view(q.shape))
            if dropout:
                attended.mul_(dropout_scale(dropout))
        context.save_for_backward(*saved)
        return grouping.queries.scatter(attended)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return gradients of query, key and value."""
        grouping: Grouping = context.grouping
        tensors, tensors_per_group = context.saved_tensors, 5 if context.dropout else 4
        saved = [
            tensors[at : at + tensors_per_group] for at in range(0, len(tensors), tensors_per_group)
        ]
        rows = grouping.queries.gather_gradient(gradient)
        last = grouping.groups[-1]
        of_keys = (last.first_key + last.count * last.keys, *context.shape[1:])
        to_queries = torch.empty_like(rows)
        to_keys, to_values = rows.new_empty(of_keys), rows.new_empty(of_keys)
        with torch.autocast("cpu", enabled=False):
            for group, (q, k, v, weight, *masks) in zip(grouping.groups, saved, strict=True):
                out = _copied(group.of_queries(rows))
                if masks:
                    out.mul_(dropout_scale(context.dropout))
                to_q, to_k, to_v = _backward(out, q, k, v, weight, masks)
                group.of_queries(to_queries).copy_(to_q.view(q.shape).mul_(context.scale))
                group.of_keys(to_keys).copy_(to_k.view(k.shape))
                group.of_keys(to_values).copy_(to_v.view(v.shape))
        return (
            grouping.queries.scatter(to_queries),
            grouping.keys.scatter(to_keys),
            grouping.keys.scatter(to_values),
            None, None, None,
        )  # fmt: skip


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, grouping: Grouping, dropout: float
) -> Tensor:
    """Compute the same by groups through torch's fused kernel, on any device."""
    queries = grouping.queries.gather(query)
    keys, values = grouping.keys.gather(key), grouping.keys.gather(value)
    rows = []
    for group in grouping.groups:
        hidden = None if group.hidden is None else group.hidden.to(query.dtype)
        out = F.scaled_dot_product_attention(
            group.of_queries(queries), group.of_keys(keys), group.of_keys(values), hidden, dropout
        )
        rows.append(out.transpose(1, 2).flatten(0, 1))
    return grouping.queries.scatter(torch.cat(rows))


def _weights(q: Tensor, k: Tensor, group: Group, causal: bool) -> Tensor:
    """Return attention weights (count, heads, queries, keys)."""
    score = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2))
    score = score.view(*q.shape[:2], group.queries, group.keys)
    if group.hidden is not None:
        score.add_(group.hidden.to(score.dtype))
    if causal:
        assert group.queries == group.keys
        later = torch.ones(group.queries, group.keys, dtype=torch.bool).triu(1)
        score.masked_fill_(later, -torch.inf)
    return score.softmax(-1)


def _backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, weight: Tensor, masks: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of the scaled queries, the keys and the values, by sequence and head."""
    gradient, q, k, v, weight = (tensor.flatten(0, 1) for tensor in (gradient, q, k, v, weight))
    dropped = apply_mask(weight, masks[0].flatten(0, 1)) if masks else weight
    to_v = torch.bmm(dropped.transpose(1, 2), gradient)
    to_weight = torch.bmm(gradient, v.transpose(1, 2))
    if masks:
        apply_mask_(to_weight, masks[0].flatten(0, 1))
    # the softmax's own derivative, in float32 inside torch whatever the type
    to_score = torch._softmax_backward_data(to_weight, weight, -1, weight.dtype)
    return torch.bmm(to_score, k), torch.bmm(to_score.transpose(1, 2), q), to_v


def _copied(part: Tensor) -> Tensor:
    """Return a copy in which every head's rows lie together, as torch's products want them."""
    return part.clone(memory_format=torch.contiguous_format)
