"""Where the sequences of a packed batch lie, and attention within them.

Linear layers, norms and losses see (tokens, hidden) and know nothing of sequences; attention asks
`Spans`, which also picks the backend:

    CPU, training    `_PackedAttention`: one sequence after another, its scores stay in the cache
                     (bf16, 2 threads: forward + backward 1.9 to 3 times faster than a loop over
                     torch's fused kernel, whose backward is slow there; see docs/log.md)
    CPU, inference   torch's fused kernel, one sequence after another
    CUDA, half       torch's variable-length kernel
    CUDA, otherwise  torch's fused kernel on a padded copy, made for this call only
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertsmith.shapes import Heads, Offsets


@dataclass(frozen=True, slots=True)
class Spans:
    """The sequences of a batch: `offsets` (sequences + 1,) on its device, `lengths` on the host.

    With `causal`, a token sees itself and those before it only.
    """

    offsets: Offsets
    lengths: tuple[int, ...]
    causal: bool = False

    def attend(self, query: Heads, key: Heads, value: Heads, dropout: float = 0.0) -> Heads:
        """Scaled dot-product attention within each sequence (Vaswani et al. 2017, equation 1).

        All are (tokens, heads, head); `dropout` is the share of attention weights set to zero.
        """
        if query.is_cuda:
            if dropout == 0.0 and query.dtype in (torch.float16, torch.bfloat16):
                return self._variable_length(query, key, value)
            return self._padded(query, key, value, dropout)
        if dropout == 0.0 and not (torch.is_grad_enabled() and query.requires_grad):
            return self._one_by_one(query, key, value)
        attended: Tensor = _PackedAttention.apply(  # type: ignore[no-untyped-call]
            query, key, value, self.lengths, dropout, self.causal
        )
        return attended

    def _one_by_one(self, query: Heads, key: Heads, value: Heads) -> Heads:
        attended = [
            F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=self.causal)
            for q, k, v in _by_sequence(self.lengths, query, key, value)
        ]
        return torch.cat([part[0].transpose(0, 1) for part in attended])

    def _variable_length(self, query: Heads, key: Heads, value: Heads) -> Heads:
        from torch.nn.attention.varlen import varlen_attn

        offsets, longest = self.offsets.int(), max(self.lengths)
        # tokens seen to the left and to the right; -1 is all
        window = (-1, 0 if self.causal else -1)
        attended = varlen_attn(
            query, key, value, offsets, offsets, longest, longest, window_size=window
        )
        assert isinstance(attended, Tensor)
        return attended

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


class _PackedAttention(torch.autograd.Function):
    """Attention within each sequence of a packed batch, scores kept for the backward pass."""

    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lengths: tuple[int, ...],
        dropout: float,
        causal: bool,
    ) -> Tensor:
        scale = 1 / math.sqrt(query.shape[-1])
        attended = torch.empty_like(value)
        later = torch.ones(causal * max(lengths), max(lengths), dtype=torch.bool).triu(1)
        weights: list[Tensor] = []
        kept: list[Tensor] = []
        with torch.autocast("cpu", enabled=False):
            for q, k, v, out in _by_sequence(lengths, query, key, value, attended):
                score = torch.bmm(q * scale, k.transpose(1, 2))
                if causal:
                    score.masked_fill_(later[: q.shape[1], : q.shape[1]], -torch.inf)
                weight = score.softmax(-1)
                weights.append(weight)
                if dropout:
                    kept.append(_dropout_mask(weight, dropout))
                    weight = weight * kept[-1]
                out.copy_(torch.bmm(weight, v))
        context.save_for_backward(query, key, value, *weights, *kept)
        context.lengths, context.scale = lengths, scale
        return attended

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        query, key, value, *saved = context.saved_tensors
        lengths, scale = context.lengths, context.scale
        weights, kept = saved[: len(lengths)], saved[len(lengths) :]
        gradients = tuple(torch.empty_like(each) for each in (query, key, value))
        sequences = _by_sequence(lengths, query, key, value, gradient, *gradients)
        with torch.autocast("cpu", enabled=False):
            for index, (q, k, v, out, to_q, to_k, to_v) in enumerate(sequences):
                weight = weights[index]
                dropped = weight * kept[index] if kept else weight
                to_v.copy_(torch.bmm(dropped.transpose(1, 2), out))
                to_weight = torch.bmm(out, v.transpose(1, 2))
                if kept:
                    to_weight.mul_(kept[index])
                # the softmax's own derivative, in float32 inside torch whatever the type
                to_score = torch._softmax_backward_data(to_weight, weight, -1, weight.dtype)
                to_score.mul_(scale)
                to_q.copy_(torch.bmm(to_score, k))
                to_k.copy_(torch.bmm(to_score.transpose(1, 2), q))
        return *gradients, None, None, None


def _by_sequence(lengths: tuple[int, ...], *packed: Tensor) -> zip[tuple[Tensor, ...]]:
    """Views (heads, length, head) of each sequence, of every tensor given."""
    parts = ([part.transpose(0, 1) for part in each.split(lengths)] for each in packed)
    return zip(*parts, strict=True)


def _dropout_mask(like: Tensor, share: float) -> Tensor:
    """Zeros with the given share, else 1 / (1 - share); one random byte an entry.

    A byte resolves the share to 1/256; the scale uses the share really dropped, so that the
    expectation is exact.
    """
    limit = max(1, round(share * 256))
    random = torch.empty(like.shape, dtype=torch.uint8).random_(0, 256)
    return (random >= limit).to(like.dtype).mul_(256 / (256 - limit))
