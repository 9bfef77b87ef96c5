"""The terms of distillation over all pairs of tokens: attention scores, and relations of vectors.

A matrix of (heads, length, length) for each sequence is compared with a teacher's. It is made, and
turned into the gradient, for some sequences of about one length at once; what is kept for the
backward pass is the gradient of vectors, (tokens, heads, head).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertsmith.network.batch import Batch, Target
from bertsmith.network.encoded import Encoded, Taps
from bertsmith.network.model import Model
from bertsmith.objectives.distillation import KINDS, loss_of_tokens, vectors_name, widened
from bertsmith.objectives.objective import Loss, TapsTerm

# entries of a group's matrices: what the caches of a few cores hold
_ENTRIES = 2**21
# a group's shortest sequence in shares of its longest, so that little of its matrices is padding
_MIN_LENGTH_RATIO = 0.8
_MAX_HEADS = 48


class AttentionScores(TapsTerm):
    """The squared error of attention scores before the softmax (Jiao et al. 2020, equation 7).

    Summed over pairs of a student's layer and the teacher's, which have as many heads; a mean over
    heads and over the tokens of a sequence.
    """

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._pairs = tuple(pairs)
        self.reads = Taps(qkv=frozenset(student_layer for student_layer, _ in pairs))

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the tokens that ask."""
        losses = []
        for layer, of_teacher in self._pairs:
            query, key, _ = (widened(item) for item in encoded.qkv[layer])
            taught = [
                widened(batch.given[vectors_name(kind, of_teacher)]).to(query.dtype)
                for kind in KINDS[:2]
            ]
            with torch.autocast(query.device.type, enabled=False):
                losses.append(_ScoreLoss.apply(query, key, *taught, batch.lengths))  # type: ignore[no-untyped-call]
        return loss_of_tokens(torch.stack(losses).sum(), target)


class Relations(TapsTerm):
    """The divergence of relations among queries, among keys, and among values.

    Wang et al. 2021, section 3.2: the vectors of all heads are concatenated and split again into
    `heads` relation heads, which the two models have in common whatever their own are.
    """

    def __init__(self, layer: int, of_teacher: int, *, heads: int) -> None:
        self._layer, self._of_teacher, self._heads = layer, of_teacher, heads
        self.reads = Taps(qkv=frozenset({layer}))

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the tokens."""
        losses = []
        for kind, vectors in zip(KINDS, encoded.qkv[self._layer], strict=True):
            student = widened(vectors)
            with torch.autocast(student.device.type, enabled=False):
                taught = widened(batch.given[vectors_name(kind, self._of_teacher)]).to(
                    student.dtype
                )
                both = self._resplit(student), self._resplit(taught)
                losses.append(_RelationLoss.apply(*both, batch.lengths))  # type: ignore[no-untyped-call]
        return loss_of_tokens(torch.stack(losses).sum(), target)

    def _resplit(self, vectors: Tensor) -> Tensor:
        return vectors.flatten(1).unflatten(-1, (self._heads, -1))  # type: ignore[no-any-return]


def relation_heads(*widths: int) -> int:
    """Return the number of relation heads: the largest that divides all widths, at most 48.

    That is the number of Wang et al. 2021 for teachers of BERT's size.
    """
    common = math.gcd(*widths)
    return max(number for number in range(1, _MAX_HEADS + 1) if common % number == 0)


class _Group(NamedTuple):
    """Some sequences: their tokens (sequences, longest), and which entries hold one."""

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
        max_sequences = max(1, _ENTRIES // (heads * longest * longest))
        count = next(
            (
                n
                for n, item in enumerate(order)
                if n == max_sequences or lengths[item] < _MIN_LENGTH_RATIO * longest
            ),
            len(order),
        )
        chosen, order = order[:count], order[count:]
        position = torch.arange(longest, device=device)
        size = torch.tensor([lengths[item] for item in chosen], device=device)[:, None]
        start = torch.tensor([starts[item] for item in chosen], device=device)[:, None]
        is_token = position < size
        yield _Group(tokens=start + position.minimum(size - 1), held=is_token)


def _gather(vectors: Tensor, group: _Group) -> Tensor:
    """Return vectors of a group's tokens, (sequences, heads, longest, head), zero where none is."""
    gathered = vectors[group.tokens] * group.held[:, :, None, None]
    return gathered.transpose(1, 2)


def _products(heads: Tensor, right: Tensor) -> Tensor:
    products: Tensor = heads @ right.transpose(-1, -2) * float(heads.shape[-1]) ** -0.5
    return products


def _add(gradient: Tensor, group: _Group, values: Tensor) -> None:
    """Set the gradient of a group's tokens."""
    gradient[group.tokens[group.held]] = values.transpose(1, 2)[group.held]


class _ScoreLoss(torch.autograd.Function):
    """The squared difference of attention scores, summed over the tokens that ask.

    Scores are Q K' / sqrt(head), before the softmax; the difference is a mean over heads and over
    the tokens of the sequence (Jiao et al. 2020, equation 7). Vectors are (tokens, heads, head);
    the teacher's may be of another width.
    """

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
            q, k = _gather(query, group), _gather(key, group)
            taught = _products(_gather(query_taught, group), _gather(key_taught, group))
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


class _RelationLoss(torch.autograd.Function):
    """The divergence of relations, summed over tokens and averaged over heads.

    Relations are softmax(V V' / sqrt(head)) of vectors with as many relation heads on both sides,
    and the divergence is KL(teacher || student) (Wang et al. 2021, equations 4 to 6).
    """

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
            vectors = _gather(student, group)
            student_logs = _log_relations(vectors, group)
            taught = _log_relations(_gather(teacher, group), group)
            asking = group.held[:, None, :, None]
            shares = taught.exp() * asking
            total += (shares * (taught - student_logs)).sum() / heads
            slope = (student_logs.exp() * asking - shares) * (vectors.shape[-1] ** -0.5 / heads)
            _add(gradient, group, slope @ vectors + slope.transpose(-1, -2) @ vectors)
        context.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (saved,) = context.saved_tensors
        return saved * gradient, None, None


def _log_relations(vectors: Tensor, group: _Group) -> Tensor:
    """Return the logarithms of relations, (sequences, heads, longest, longest); no infinities."""
    scores = _products(vectors, vectors)
    # far below what a softmax can tell from zero, and still finite
    scores = scores.masked_fill(~group.held[:, None, None, :], -1e9)
    return scores.log_softmax(-1)
