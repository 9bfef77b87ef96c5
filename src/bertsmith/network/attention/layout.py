"""The layout of the sequences in a packed batch, and attention within them.

Linear layers, norms and losses see (tokens, hidden) and know nothing of sequences; attention asks
`Spans`, which also picks the backend:

    CPU, training    `PackedAttention`: sequences of about one length at once, weights kept for the
                     backward pass (torch's fused kernel has a slow one there; see
                     docs/experiments/attention.md)
    CPU, inference   torch's fused kernel, one sequence after another
    CUDA, half       torch's variable-length kernels: its own function, or nested tensors where
                     weights are dropped
    CUDA, otherwise  torch's fused kernel on a padded copy, made for this call only

With a window, where sequences are longer than it: on a CPU in training the same, on CUDA without
dropout and in half precision the same; otherwise torch's fused kernel on blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertsmith.core.shapes import Heads, Offsets, Places, Queries
from bertsmith.network.attention.cpu import Grouping, PackedAttention, fused_attention, group
from bertsmith.network.attention.local import group_local
from bertsmith.network.attention.reference import attention_weights
from bertsmith.network.attention.rotary import Rotation


@dataclass(frozen=True, slots=True)
class Spans:
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
        self, query: Queries, key: Heads, at: Places | None = None
    ) -> tuple[Queries, Heads]:
        """Return queries, of all tokens or of those `at` (places,), and keys turned by position."""
        if self.rotation is None:
            return query, key
        return self.rotation.turn(query, at), self.rotation.turn(key)

    def weights(self, query: Heads, key: Heads) -> tuple[Tensor, ...]:
        """Return the attention weights of each sequence, by the reference backend."""
        return attention_weights(query, key, self.lengths, causal=self.causal, window=self.window)

    def attend(
        self,
        query: Queries,
        key: Heads,
        value: Heads,
        dropout: float = 0.0,
        at: Places | None = None,
    ) -> Queries:
        """Scaled dot-product attention within each sequence (Vaswani et al. 2017, equation 1).

        `key` and `value` are (tokens, heads, head), `query` too, or (places, heads, head) where
        `at` (places,) names some of the tokens, in order; `dropout` is the share of attention
        weights set to zero.
        """
        assert not self.causal or (at is None and self.window is None)
        if self.cuts and not (query.is_cuda and _half(query) and not dropout):
            return self._in_blocks(query, key, value, dropout, at)
        if query.is_cuda:
            return self._on_cuda(query, key, value, dropout, at)
        asked = self.lengths if at is None else self.asked(at)
        if dropout == 0.0 and not (torch.is_grad_enabled() and query.requires_grad):
            return self._one_by_one(query, key, value, asked)
        attended: Tensor = PackedAttention.apply(  # type: ignore[no-untyped-call]
            query, key, value, self._grouped(query.shape[1], asked), dropout, self.causal
        )
        return attended

    @property
    def cuts(self) -> bool:
        """Return whether the window keeps any token from seeing all of its sequence."""
        return self.window is not None and max(self.lengths) > self.window + 1

    def _in_blocks(
        self, query: Queries, key: Heads, value: Heads, dropout: float, at: Places | None
    ) -> Queries:
        assert self.window is not None
        heads = query.shape[1]
        grouping = self._groupings.get(heads) if at is None else None
        if grouping is None:
            grouping = group_local(self.lengths, heads, self.window, at).to(query.device)
        if at is None:
            self._groupings[heads] = grouping
        trained = torch.is_grad_enabled() and query.requires_grad
        if query.is_cuda or not (dropout or trained):
            return fused_attention(query, key, value, grouping, dropout)
        attended: Tensor = PackedAttention.apply(  # type: ignore[no-untyped-call]
            query, key, value, grouping, dropout, False
        )
        return attended

    def asked(self, at: Places) -> tuple[int, ...]:
        """Return the number of the tokens `at` in each sequence."""
        return tuple(torch.searchsorted(at, self.offsets).diff().tolist())

    def _grouped(self, heads: int, asked: tuple[int, ...]) -> Grouping:
        if asked is not self.lengths:
            return group(self.lengths, heads, asked)
        if heads not in self._groupings:
            self._groupings[heads] = group(self.lengths, heads)
        return self._groupings[heads]

    def _one_by_one(
        self, query: Queries, key: Heads, value: Heads, asked: tuple[int, ...]
    ) -> Queries:
        queries = _by_sequence(asked, query)
        keys, values = _by_sequence(self.lengths, key), _by_sequence(self.lengths, value)
        attended = [
            F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=self.causal)
            for q, k, v in zip(queries, keys, values, strict=True)
            if q.shape[1]
        ]
        return torch.cat([part[0].transpose(0, 1) for part in attended])

    def _on_cuda(
        self, query: Queries, key: Heads, value: Heads, dropout: float, at: Places | None
    ) -> Queries:
        half = _half(query)
        if half and not dropout and not (self.cuts and at is not None):
            return self._variable_length(query, key, value, at)
        if at is not None:
            # the kernels below want as many queries as keys
            everywhere = query.new_zeros(key.shape).index_copy(0, at, query)
            return self._on_cuda(everywhere, key, value, dropout, None).index_select(0, at)
        return (self._nested if half else self._padded)(query, key, value, dropout)

    def _variable_length(
        self, query: Queries, key: Heads, value: Heads, at: Places | None
    ) -> Queries:
        from torch.nn.attention.varlen import varlen_attn

        offsets, longest = self.offsets.int(), max(self.lengths)
        asked = offsets if at is None else torch.searchsorted(at, self.offsets).int()
        # tokens seen to the left and to the right; -1 is all
        window = (-1, 0 if self.causal else -1)
        if self.window is not None:
            window = (self.window, self.window)
        attended = varlen_attn(
            query, key, value, asked, offsets, longest, longest, window_size=window
        )
        assert isinstance(attended, Tensor)
        return attended

    def _nested(self, query: Heads, key: Heads, value: Heads, dropout: float) -> Heads:
        def nested(packed: Tensor) -> Tensor:
            parts: Tensor = torch.nested.nested_tensor_from_jagged(
                packed, self.offsets, min_seqlen=min(self.lengths), max_seqlen=max(self.lengths)
            )
            return parts.transpose(1, 2)

        attended = F.scaled_dot_product_attention(
            nested(query), nested(key), nested(value), dropout_p=dropout, is_causal=self.causal
        )
        return attended.transpose(1, 2).values()

    def _padded(self, query: Heads, key: Heads, value: Heads, dropout: float) -> Heads:
        lengths, longest, sequences = self.offsets.diff(), max(self.lengths), len(self.lengths)
        column = torch.arange(len(query), device=query.device)
        shift = torch.arange(sequences, device=query.device) * longest - self.offsets[:-1]
        place = column + shift.repeat_interleave(lengths, output_size=len(query))

        def spread(packed: Tensor) -> Tensor:
            padded = packed.new_zeros(sequences * longest, *packed.shape[1:])
            padded = padded.index_copy(0, place, packed)
            return padded.view(sequences, longest, *packed.shape[1:]).transpose(1, 2)

        seen = (torch.arange(longest, device=query.device) < lengths[:, None])[:, None, None]
        if self.causal:
            seen = seen & seen.new_ones(longest, longest).tril()
        attended = F.scaled_dot_product_attention(
            spread(query), spread(key), spread(value), seen, dropout
        )
        return attended.transpose(1, 2).flatten(0, 1).index_select(0, place)


def _half(values: Tensor) -> bool:
    return values.dtype in (torch.float16, torch.bfloat16)


def _by_sequence(lengths: tuple[int, ...], packed: Tensor) -> list[Tensor]:
    """Views (heads, length, head) of each sequence."""
    return [part.transpose(0, 1) for part in packed.split(list(lengths))]
