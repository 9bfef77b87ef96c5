"""Attention to neighbours only: every way against the plain formula in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bertsmith.network import dropout as dropout_module
from bertsmith.network.attention import cpu, layout
from bertsmith.network.attention.cpu import Grouping, fused_attention
from bertsmith.network.attention.layout import SequenceLayout, group_blocks
from bertsmith.network.dropout import dropout_scale
from bounds import close_gradients, close_to_float64

# blocks are of 64 queries where a window is 20: none, one, several and an uneven end
LENGTHS = (13, 300, 1, 21, 64, 129, 22)
WINDOW = 20
TOKENS, HEADS, WIDTH = sum(LENGTHS), 3, 5
Inputs = tuple[Tensor, Tensor, Tensor]
# many of the first long sequence, none of the short ones, some of the last two
PLACES = (*range(13, 60, 2), 76, 77, 170, 312, *range(400, 430), TOKENS - 22, TOKENS - 1)


def inputs(kind: torch.dtype = torch.float32, *, grad: bool = False) -> Inputs:
    generator = torch.Generator().manual_seed(2)
    query, key, value = (
        torch.randn(TOKENS, HEADS, WIDTH, generator=generator, dtype=torch.float64).to(kind)
        for _ in range(3)
    )
    return query.requires_grad_(grad), key.requires_grad_(grad), value.requires_grad_(grad)


def spans(window: int | None = WINDOW, lengths: tuple[int, ...] = LENGTHS) -> SequenceLayout:
    return SequenceLayout(torch.tensor([0, *lengths]).cumsum(0), lengths, window=window)


def visible(lengths: tuple[int, ...], window: int) -> Tensor:
    """Whether the token of a row sees that of a column."""
    owner = torch.repeat_interleave(torch.tensor(lengths))
    place = torch.arange(len(owner))
    near = (place[:, None] - place).abs() <= window
    return near & (owner[:, None] == owner)


def plain(query: Tensor, key: Tensor, value: Tensor, masks: Tensor | None = None) -> Tensor:
    """Equation 1 of Vaswani et al. 2017 over all tokens at once, what is not seen left out."""
    scores = torch.einsum("qhd,khd->hqk", query, key) / math.sqrt(WIDTH)
    weights = scores.masked_fill(~visible(LENGTHS, WINDOW), -torch.inf).softmax(-1)
    if masks is not None:
        weights = weights * masks
    return torch.einsum("hqk,khd->qhd", weights, value)


def attend(each: Inputs, at: Tensor | None) -> Tensor:
    return spans().attend(*each, selected=at)


def fused(each: Inputs, at: Tensor | None) -> Tensor:
    return fused_attention(*each, group_blocks(LENGTHS, HEADS, WINDOW, at), 0.0)


Way = Callable[[Inputs, Tensor | None], Tensor]
every_way = pytest.mark.parametrize("way", [attend, fused])


@every_way
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("places", [None, PLACES])
def test_every_way_gives_the_plain_formula(
    way: Way, grad: bool, places: tuple[int, ...] | None
) -> None:
    at = None if places is None else torch.tensor(places)
    query, key, value = inputs(grad=grad)
    expected = plain(*inputs(torch.float64))
    if at is not None:
        query, expected = query[at], expected[at]
    found = way((query, key, value), at)
    assert found.shape == expected.shape
    close_to_float64(found, expected)


@every_way
@pytest.mark.parametrize("places", [None, PLACES])
def test_every_way_has_the_gradients_of_the_plain_formula(
    way: Way, places: tuple[int, ...] | None
) -> None:
    exact, rough = inputs(torch.float64, grad=True), inputs(grad=True)
    at = None if places is None else torch.tensor(places)
    everywhere = torch.arange(TOKENS) if at is None else at
    found = way((rough[0][everywhere], rough[1], rough[2]), at)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(9))
    (plain(*exact)[everywhere] * weights.double()).sum().backward()
    (found * weights).sum().backward()
    for expected, mine in zip(exact, rough, strict=True):
        assert expected.grad is not None
        assert mine.grad is not None
        close_gradients(mine.grad, expected.grad)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_backward_pass_is_the_derivative_of_the_forward_pass(
    dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "_MIN_LENGTH", 4)
    lengths = (9, 1, 5)
    generator = torch.Generator().manual_seed(2)
    query, key, value = (
        torch.randn(15, 2, 2, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(3)
    )

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        torch.manual_seed(6)  # the same weights dropped each time
        return spans(2, lengths).attend(query, key, value, dropout)

    assert torch.autograd.gradcheck(run, (query, key, value))


def test_dropped_weights_are_left_out_of_the_plain_formula(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Tensor] = []

    def remembered(like: Tensor, share: float) -> Tensor:
        made.append(original(like, share))
        return made[-1]

    original = dropout_module.dropout_mask
    monkeypatch.setattr(cpu, "dropout_mask", remembered)
    found = spans().attend(*inputs(grad=True), 0.25)
    masks = torch.zeros(HEADS, TOKENS, TOKENS, dtype=torch.float64)
    grouping = group_blocks(LENGTHS, HEADS, WINDOW)
    for kept, (queries, keys, seen) in zip(made, pairs(grouping), strict=True):
        for head in range(HEADS):
            share = (kept[:, head] != 0).double() * dropout_scale(0.25)
            masks[head, queries[seen], keys[seen]] = share[seen]
    expected = plain(*inputs(torch.float64), masks=masks)
    close_to_float64(found, expected)


def pairs(found: Grouping) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of each group the queries' and the keys' tokens, and which see which, (count, q, k)."""
    assert found.queries.take is not None
    assert found.keys.take is not None
    real = torch.ones(len(found.queries.take), dtype=torch.bool)
    if found.queries.spare is not None:
        real[found.queries.spare] = False
    out = []
    for group in found.groups:
        a = slice(group.first_query, group.first_query + group.count * group.queries)
        b = slice(group.first_key, group.first_key + group.count * group.keys)
        seen = real[a].view(group.count, group.queries, 1).expand(-1, -1, group.keys)
        if group.hidden is not None:
            seen = seen & (group.hidden[:, 0] == 0)
        queries = found.queries.take[a].view(group.count, group.queries, 1).expand_as(seen)
        keys = found.keys.take[b].view(group.count, 1, group.keys).expand_as(seen)
        out.append((queries, keys, seen))
    return out


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=6), st.integers(1, 90), st.integers(1, 16)
)
def test_every_pair_within_the_window_is_computed_once(
    sizes: list[int], window: int, heads: int
) -> None:
    counted = torch.zeros(sum(sizes), sum(sizes), dtype=torch.int64)
    found = group_blocks(sizes, heads, window)
    for queries, keys, seen in pairs(found):
        ones = torch.ones(int(seen.sum()), dtype=torch.int64)
        counted.index_put_((queries[seen], keys[seen]), ones, accumulate=True)
    assert torch.equal(counted, visible(tuple(sizes), window).long())
    tokens = torch.arange(1.0, sum(sizes) + 1)
    assert torch.equal(found.queries.scatter(found.queries.gather(tokens)), tokens)
    # the rows of a token are added up, and spare ones to nothing
    appear = found.keys.scatter(found.keys.gather_gradient(torch.ones(sum(sizes))))
    assert appear.min() >= 1
    assert appear.max() <= 2


def test_the_work_grows_with_the_length_and_not_with_its_square() -> None:
    def entries(length: int) -> int:
        found = group_blocks((length,), 12, 64)
        return sum(group.count * group.queries * group.keys for group in found.groups)

    # 128 queries, each block with 256 keys, those at the ends with 64 fewer
    assert [entries(n) for n in (512, 8192)] == [512 * 256 - 128 * 128, 8192 * 256 - 128 * 128]


def test_sequences_within_the_window_take_the_way_of_all_others() -> None:
    lengths = (13, 7, 21)
    query, key, value = (item[:41] for item in inputs())
    for grad in (False, True):
        mine = query.clone().requires_grad_(grad)
        near = spans(20, lengths).attend(mine, key, value)
        assert torch.equal(near, spans(None, lengths).attend(mine, key, value))
        assert not torch.equal(near, spans(19, lengths).attend(mine, key, value))
