"""The layout of the sequences in a packed batch, and attention within them.

Linear layers, norms and losses see (tokens, hidden) and know nothing of sequences; attention asks
`SequenceLayout`, which also picks the backend:

    CPU, training    `PackedAttention`: sequences of about one length at once, weights kept for the
                     backward pass (torch's fused kernel has a slow one there; see
                     docs/experiments/attention.md)
    CPU, inference   torch's fused kernel, one sequence after another
    CUDA, half       torch's variable-length flash attention (Dao 2023)
    CUDA, otherwise  torch's fused kernel on a padded copy, made for this call only

With a window, where sequences are longer than it: on a CPU in training the same, on CUDA in half
precision the same; otherwise torch's fused kernel on blocks. A sequence becomes blocks of queries;
the keys of a block are its own tokens and those within the window on either side (Beltagy et al.
2020, section 3.1), so that the work grows with the length of a sequence, not with its square. A
block is at least as long as both sides of the window together, so that no token is a key of more
than two blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.core.shapes import Heads, Offsets, Queries, SelectedTokens
from bertsmith.network.attention.cpu import (
    Group,
    Grouping,
    Numbers,
    PackedAttention,
    fused_attention,
    group,
    pad_rows,
    rounded,
    rows_of,
    sequences_at_once,
)
from bertsmith.network.attention.reference import attention_weights
from bertsmith.network.attention.rotary import Rotation


@dataclass(frozen=True, slots=True)
class SequenceLayout:
    """The sequences of a batch: `offsets` (sequences + 1,) on its device, `lengths` on the host.

    With `causal`, a token sees itself and those before it only; with a `window`, no more than so
    many others on either side. A `rotation` turns queries and keys before they meet. All layers
    that see alike share one object, which remembers how it groups the sequences.
    """

    offsets: Offsets
    lengths: tuple[int, ...]
    causal: bool = False
    window: int | None = None
    rotation: Rotation | None = None
    _groupings: dict[int, Grouping] = field(default_factory=dict, repr=False, compare=False)

    def rotated(
        self, query: Queries, key: Heads, selected: SelectedTokens | None = None
    ) -> tuple[Queries, Heads]:
        """Return queries, of all tokens or of those `selected`, and keys rotated by position."""
        if self.rotation is None:
            return query, key
        return self.rotation.rotate(query, selected), self.rotation.rotate(key)

    def weights(self, query: Heads, key: Heads) -> tuple[Tensor, ...]:
        """Return the attention weights of each sequence, by the reference backend."""
        return attention_weights(query, key, self.lengths, causal=self.causal, window=self.window)

    def attend(
        self,
        query: Queries,
        key: Heads,
        value: Heads,
        dropout: float = 0.0,
        selected: SelectedTokens | None = None,
    ) -> Queries:
        """Compute scaled dot-product attention within sequences (Vaswani et al. 2017, equation 1).

        `key` and `value` are (tokens, heads, head), `query` too, or (selected, heads, head) where
        `selected` names some of the tokens, in order; `dropout` is the share of attention
        weights set to zero.
        """
        assert not self.causal or (selected is None and self.window is None)
        if self.cuts and not _takes_flash(query):
            return self._in_blocks(query, key, value, dropout, selected)
        if query.is_cuda:
            return self._on_cuda(query, key, value, dropout, selected)
        query_counts = self.lengths if selected is None else self.query_counts(selected)
        if dropout == 0.0 and not (torch.is_grad_enabled() and query.requires_grad):
            return self._one_by_one(query, key, value, query_counts)
        attended: Tensor = PackedAttention.apply(  # type: ignore[no-untyped-call]
            query, key, value, self._grouped(query.shape[1], query_counts), dropout, self.causal
        )
        return attended

    @property
    def cuts(self) -> bool:
        """Return whether the window keeps any token from seeing all of its sequence."""
        return self.window is not None and max(self.lengths) > self.window + 1

    def _in_blocks(
        self,
        query: Queries,
        key: Heads,
        value: Heads,
        dropout: float,
        selected: SelectedTokens | None,
    ) -> Queries:
        assert self.window is not None
        heads = query.shape[1]
        grouping = self._groupings.get(heads) if selected is None else None
        if grouping is None:
            grouping = group_blocks(self.lengths, heads, self.window, selected).to(query.device)
        if selected is None:
            self._groupings[heads] = grouping
        trained = torch.is_grad_enabled() and query.requires_grad
        if query.is_cuda or not (dropout or trained):
            return fused_attention(query, key, value, grouping, dropout)
        attended: Tensor = PackedAttention.apply(  # type: ignore[no-untyped-call]
            query, key, value, grouping, dropout, False
        )
        return attended

    def query_counts(self, selected: SelectedTokens) -> tuple[int, ...]:
        """Return the number of the tokens `selected` in each sequence."""
        return tuple(torch.searchsorted(selected, self.offsets).diff().tolist())

    def _grouped(self, heads: int, query_counts: tuple[int, ...]) -> Grouping:
        if query_counts is not self.lengths:
            return group(self.lengths, heads, query_counts)
        if heads not in self._groupings:
            self._groupings[heads] = group(self.lengths, heads)
        return self._groupings[heads]

    def _one_by_one(
        self, query: Queries, key: Heads, value: Heads, query_counts: tuple[int, ...]
    ) -> Queries:
        queries = _by_sequence(query_counts, query)
        keys, values = _by_sequence(self.lengths, key), _by_sequence(self.lengths, value)
        attended = [
            F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=self.causal)
            for q, k, v in zip(queries, keys, values, strict=True)
            if q.shape[1]
        ]
        return torch.cat([part[0].transpose(0, 1) for part in attended])

    def _on_cuda(
        self,
        query: Queries,
        key: Heads,
        value: Heads,
        dropout: float,
        selected: SelectedTokens | None,
    ) -> Queries:
        flash = _takes_flash(query)
        if flash and not (self.cuts and selected is not None):
            return self._flash(query, key, value, dropout, selected)
        if selected is not None:
            # the kernels below want as many queries as keys
            everywhere = query.new_zeros(key.shape).index_copy(0, selected, query)
            return self._on_cuda(everywhere, key, value, dropout, None).index_select(0, selected)
        return self._padded(query, key, value, dropout)

    def _flash(
        self,
        query: Queries,
        key: Heads,
        value: Heads,
        dropout: float,
        selected: SelectedTokens | None,
    ) -> Queries:
        """Return the output of the kernel below torch's nested tensors and `varlen_attn`.

        With the former a training step took 2.4 times as long (docs/experiments/gpu.md), and the
        latter drops no weights.
        """
        offsets, longest, width = self.offsets.int(), max(self.lengths), query.shape[-1]
        query_offsets = (
            offsets if selected is None else torch.searchsorted(selected, self.offsets).int()
        )
        if padding := -width % _FLASH_STEP:
            query, key, value = (F.pad(part, (0, padding)) for part in (query, key, value))
        attended: Tensor = torch.ops.aten._flash_attention_forward(
            query, key, value, query_offsets, offsets, longest, longest, dropout, self.causal,
            False, scale=width**-0.5, window_size_left=self.window, window_size_right=self.window,
        )[0]  # fmt: skip
        return attended[..., :width]

    def _padded(self, query: Heads, key: Heads, value: Heads, dropout: float) -> Heads:
        lengths, longest, sequences = self.offsets.diff(), max(self.lengths), len(self.lengths)
        column = torch.arange(len(query), device=query.device)
        shift = torch.arange(sequences, device=query.device) * longest - self.offsets[:-1]
        position = column + shift.repeat_interleave(lengths, output_size=len(query))

        def spread(packed: Tensor) -> Tensor:
            padded = packed.new_zeros(sequences * longest, *packed.shape[1:])
            padded = padded.index_copy(0, position, packed)
            return padded.view(sequences, longest, *packed.shape[1:]).transpose(1, 2)

        seen = (torch.arange(longest, device=query.device) < lengths[:, None])[:, None, None]
        if self.causal:
            seen = seen & seen.new_ones(longest, longest).tril()
        attended = F.scaled_dot_product_attention(
            spread(query), spread(key), spread(value), seen, dropout
        )
        return attended.transpose(1, 2).flatten(0, 1).index_select(0, position)


# widths of heads that flash attention computes: multiples of the step, up to the largest
_FLASH_STEP, _FLASH_LARGEST = 8, 256


def _takes_flash(query: Queries) -> bool:
    """Return whether torch's flash attention can compute queries: in half precision, on a GPU."""
    if not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
        return False
    return query.shape[-1] <= _FLASH_LARGEST and _has_flash(query.device.index)


@functools.cache
def _has_flash(device: int) -> bool:
    # its kernels are written for Ampere and later
    capable = torch.cuda.get_device_capability(device) >= (8, 0)
    return capable and torch.backends.cuda.is_flash_attention_available()


def _by_sequence(lengths: tuple[int, ...], packed: Tensor) -> list[Tensor]:
    """Return views (heads, length, head) of each sequence."""
    return [part.transpose(0, 1) for part in packed.split(list(lengths))]


# of queries: shorter ones make products too small to be fast
_MIN_LENGTH = 64


@dataclass(frozen=True, slots=True)
class _BlockRows:
    """Tokens or queries of each block: where they begin, and how many."""

    starts: Numbers
    counts: Numbers

    def in_order(self, order: Numbers) -> _BlockRows:
        return _BlockRows(self.starts[order], self.counts[order])


def group_blocks(
    lengths: Sequence[int], heads: int, window: int, selected: Tensor | None = None
) -> Grouping:
    """Group blocks of sequences of these lengths, a token seeing `window` others on either side.

    With `selected`, some of the tokens in order, only these are queries.
    """
    positions = None if selected is None else selected.cpu().numpy()
    queries, keys = _blocks(np.asarray(lengths, np.int64), window, positions)
    wide = rounded(keys.counts)
    order = np.lexsort((queries.counts, wide))
    queries, keys, wide = queries.in_order(order), keys.in_order(order), wide[order]
    parts = list(_parts(queries.counts, wide, heads))
    # a group without queries still has a row, so that no product is empty
    max_queries = [max(1, int(queries.counts[begin:end].max())) for begin, end in parts]
    tall = np.repeat(max_queries, [end - begin for begin, end in parts])
    of_queries, spare_queries = pad_rows(queries.starts, queries.counts, tall)
    of_keys, spare_keys = pad_rows(keys.starts, keys.counts, wide)
    query_tokens = of_queries if positions is None else positions[of_queries]
    groups, first_query, first_key = [], 0, 0
    for (begin, end), longest in zip(parts, max_queries, strict=True):
        count, seen = end - begin, int(wide[begin])
        a = slice(first_query, first_query + count * longest)
        b = slice(first_key, first_key + count * seen)
        distance = query_tokens[a].reshape(count, longest, 1) - of_keys[b].reshape(count, 1, seen)
        unseen = (np.abs(distance) > window) | spare_keys[b].reshape(count, 1, seen)
        # the output of a spare query is unused, but it must see something
        unseen &= ~spare_queries[a].reshape(count, longest, 1)
        groups.append(Group(count, longest, seen, first_query, first_key, _hidden(unseen)))
        first_query, first_key = a.stop, b.stop
    total = sum(lengths)
    return Grouping(
        tuple(groups),
        rows_of(of_queries, spare_queries, total if positions is None else len(positions)),
        rows_of(of_keys, spare_keys, total),
    )


def _blocks(
    sizes: Numbers, window: int, positions: Numbers | None
) -> tuple[_BlockRows, _BlockRows]:
    """Return the queries and keys of every block; of queries those at `positions`, if given."""
    size = max(_MIN_LENGTH, 2 * window)
    blocks = -(-sizes // size)
    owner = np.repeat(np.arange(len(sizes)), blocks)
    first = size * (np.arange(blocks.sum()) - np.repeat(np.cumsum(blocks) - blocks, blocks))
    last = np.minimum(first + size, sizes[owner])
    low, high = np.maximum(first - window, 0), np.minimum(last + window, sizes[owner])
    start = (np.cumsum(sizes) - sizes)[owner]
    keys = _BlockRows(start + low, high - low)
    if positions is None:
        return _BlockRows(start + first, last - first), keys
    begin = np.searchsorted(positions, start + first)
    return _BlockRows(begin, np.searchsorted(positions, start + last) - begin), keys


def _parts(tall: Numbers, wide: Numbers, heads: int) -> list[tuple[int, int]]:
    """Stretches of blocks of as many keys, none with more attention weights than are wanted."""
    edges = (np.flatnonzero(np.diff(wide)) + 1).tolist()
    parts = []
    for begin, end in zip([0, *edges], [*edges, len(wide)], strict=True):
        max_blocks = sequences_at_once(
            heads * int(wide[begin]) * max(1, int(tall[begin:end].max()))
        )
        parts += [(at, min(at + max_blocks, end)) for at in range(begin, end, max_blocks)]
    return parts


def _hidden(unseen: NDArray[np.bool_]) -> Tensor | None:
    """Return the additive mask (count, heads, queries, keys), once if all blocks are alike."""
    if not unseen.any():
        return None
    alike = unseen[:1] if (unseen == unseen[:1]).all() else unseen
    hidden = torch.zeros(alike.shape).masked_fill_(torch.from_numpy(alike), -torch.inf)
    return hidden[:, None]
