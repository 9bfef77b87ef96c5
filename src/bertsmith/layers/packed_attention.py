"""Attention within groups of the sequences of a packed batch, or of their blocks."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertsmith.layers.dropout import keep, keep_, kept_bits, kept_scale
from bertsmith.layers.grouping import Group, Grouping


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
                k, v = (_copied(group.of_keys(each)) for each in (keys, values))
                weight = _weights(q, k, group, causal)
                saved += [q, k, v, weight]
                if dropout:
                    saved.append(kept_bits(weight, dropout))
                    weight = keep(weight, saved[-1])
                out = torch.bmm(weight.flatten(0, 1), v.flatten(0, 1))
                group.of_queries(attended).copy_(out.view(q.shape))
            if dropout:
                attended.mul_(kept_scale(dropout))
        context.save_for_backward(*saved)
        return grouping.queries.scatter(attended)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Gradients of query, key and value."""
        grouping: Grouping = context.grouping
        tensors, each = context.saved_tensors, 5 if context.dropout else 4
        saved = [tensors[at : at + each] for at in range(0, len(tensors), each)]
        rows = grouping.queries.gather_gradient(gradient)
        last = grouping.groups[-1]
        of_keys = (last.first_key + last.count * last.keys, *context.shape[1:])
        to_queries = torch.empty_like(rows)
        to_keys, to_values = rows.new_empty(of_keys), rows.new_empty(of_keys)
        with torch.autocast("cpu", enabled=False):
            for group, (q, k, v, weight, *kept) in zip(grouping.groups, saved, strict=True):
                out = _copied(group.of_queries(rows))
                if kept:
                    out.mul_(kept_scale(context.dropout))
                to_q, to_k, to_v = _backward(out, q, k, v, weight, kept)
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
    """The same by groups through torch's fused kernel, on any device."""
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
    """Attention weights (count, heads, queries, keys)."""
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
    out: Tensor, q: Tensor, k: Tensor, v: Tensor, weight: Tensor, kept: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the scaled queries, the keys and the values, by sequence and head."""
    out, q, k, v, weight = (each.flatten(0, 1) for each in (out, q, k, v, weight))
    dropped = keep(weight, kept[0].flatten(0, 1)) if kept else weight
    to_v = torch.bmm(dropped.transpose(1, 2), out)
    to_weight = torch.bmm(out, v.transpose(1, 2))
    if kept:
        keep_(to_weight, kept[0].flatten(0, 1))
    # the softmax's own derivative, in float32 inside torch whatever the type
    to_score = torch._softmax_backward_data(to_weight, weight, -1, weight.dtype)
    return torch.bmm(to_score, k), torch.bmm(to_score.transpose(1, 2), q), to_v


def _copied(part: Tensor) -> Tensor:
    """A copy in which every head's rows lie together, as torch's products want them."""
    return part.clone(memory_format=torch.contiguous_format)
