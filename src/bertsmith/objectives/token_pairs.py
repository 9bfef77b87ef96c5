"""Losses over all pairs of tokens of a sequence: attention scores, and relations of vectors.

A matrix of (heads, length, length) for each sequence is compared with a teacher's. It is made, and
turned into the gradient, for some sequences of about one length at once; what is kept for the
backward pass is the gradient of vectors, (tokens, heads, head).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# entries of a group's matrices: what the caches of a few cores hold
_ENTRIES = 2**21
# a group's shortest sequence in shares of its longest, so that little of its matrices is padding
_SHORTEST = 0.8


class Teaching(NamedTuple):
    """Vectors of student and teacher, (tokens, heads, head); theirs may be of another width."""

    query: Tensor
    key: Tensor
    query_taught: Tensor
    key_taught: Tensor


def score_loss(vectors: Teaching, lengths: Sequence[int]) -> Tensor:
    """Return the squared difference of attention scores, summed over the tokens that ask.

    Scores are Q K' / sqrt(head), before the softmax; the difference is a mean over heads and over
    the tokens of the sequence (Jiao et al. 2020, equation 7).
    """
    loss: Tensor = _Scores.apply(*vectors, tuple(lengths))  # type: ignore[no-untyped-call]
    return loss


def relation_loss(student: Tensor, teacher: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return the divergence of relations, summed over tokens and averaged over heads.

    Relations are softmax(V V' / sqrt(head)) of vectors with as many relation heads on both sides,
    and the divergence is KL(teacher || student) (Wang et al. 2021, equations 4 to 6).
    """
    loss: Tensor = _Relations.apply(student, teacher, tuple(lengths))  # type: ignore[no-untyped-call]
    return loss


class _Group(NamedTuple):
    """Some sequences: their tokens (sequences, longest), and the places that hold one."""

    tokens: Tensor
    held: Tensor


def _groups(lengths: Sequence[int], heads: int, device: torch.device) -> Iterator[_Group]:
    """Yield groups of sequences of about one length, in a fixed order."""
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    while order:
        longest = max(1, lengths[order[0]])
        most = max(1, _ENTRIES // (heads * longest * longest))
        count = next(
            (n for n, each in enumerate(order) if n == most or lengths[each] < _SHORTEST * longest),
            len(order),
        )
        chosen, order = order[:count], order[count:]
        place = torch.arange(longest, device=device)
        size = torch.tensor([lengths[each] for each in chosen], device=device)[:, None]
        start = torch.tensor([starts[each] for each in chosen], device=device)[:, None]
        held = place < size
        yield _Group(tokens=start + place.minimum(size - 1), held=held)


def _taken(vectors: Tensor, group: _Group) -> Tensor:
    """Return vectors of a group's tokens, (sequences, heads, longest, head), zero where none is."""
    taken = vectors[group.tokens] * group.held[:, :, None, None]
    return taken.transpose(1, 2)


def _products(left: Tensor, right: Tensor) -> Tensor:
    products: Tensor = left @ right.transpose(-1, -2) * float(left.shape[-1]) ** -0.5
    return products


def _add(gradient: Tensor, group: _Group, values: Tensor) -> None:
    """Set the gradient of a group's tokens."""
    gradient[group.tokens[group.held]] = values.transpose(1, 2)[group.held]


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401
        query: Tensor,
        key: Tensor,
        query_taught: Tensor,
        key_taught: Tensor,
        lengths: tuple[int, ...],
    ) -> Tensor:
        to_query, to_key = torch.zeros_like(query), torch.zeros_like(key)
        heads, total = query.shape[1], query.new_zeros(())
        for group in _groups(lengths, heads, query.device):
            q, k = _taken(query, group), _taken(key, group)
            taught = _products(_taken(query_taught, group), _taken(key_taught, group))
            # padding is zero on both sides
            difference = _products(q, k) - taught
            share = 1 / (heads * group.held.sum(1).to(q.dtype))[:, None, None, None]
            total += (difference.square() * share).sum()
            slope = difference * (2 * share * q.shape[-1] ** -0.5)
            _add(to_query, group, slope @ k)
            _add(to_key, group, slope.transpose(-1, -2) @ q)
        context.save_for_backward(to_query, to_key)
        return total

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        to_query, to_key = context.saved_tensors
        return to_query * gradient, to_key * gradient, None, None, None


class _Relations(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401
        student: Tensor,
        teacher: Tensor,
        lengths: tuple[int, ...],
    ) -> Tensor:
        gradient = torch.zeros_like(student)
        heads, total = student.shape[1], student.new_zeros(())
        for group in _groups(lengths, heads, student.device):
            vectors = _taken(student, group)
            own = _logs(vectors, group)
            taught = _logs(_taken(teacher, group), group)
            asking = group.held[:, None, :, None]
            shares = taught.exp() * asking
            total += (shares * (taught - own)).sum() / heads
            slope = (own.exp() * asking - shares) * (vectors.shape[-1] ** -0.5 / heads)
            _add(gradient, group, slope @ vectors + slope.transpose(-1, -2) @ vectors)
        context.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (saved,) = context.saved_tensors
        return saved * gradient, None, None


def _logs(vectors: Tensor, group: _Group) -> Tensor:
    """Return the logarithms of relations, (sequences, heads, longest, longest); no infinities."""
    scores = _products(vectors, vectors)
    # far below what a softmax can tell from zero, and still finite
    scores = scores.masked_fill(~group.held[:, None, None, :], -1e9)
    return scores.log_softmax(-1)
