"""Attention over packed sequences: every backend against the plain formula in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bertsmith.network import dropout as dropout_module
from bertsmith.network.attention import cpu
from bertsmith.network.attention.cpu import group
from bertsmith.network.attention.layout import SequenceLayout
from bertsmith.network.dropout import dropout_scale
from bounds import close_gradients, close_to_float64

LENGTHS = (13, 1, 7, 2, 19)
TOKENS, HEADS, WIDTH = sum(LENGTHS), 3, 5
Inputs = tuple[Tensor, Tensor, Tensor]


def inputs(kind: torch.dtype = torch.float32, *, grad: bool = False) -> Inputs:
    generator = torch.Generator().manual_seed(2)
    query, key, value = (
        torch.randn(TOKENS, HEADS, WIDTH, generator=generator, dtype=torch.float64).to(kind)
        for _ in range(3)
    )
    return query.requires_grad_(grad), key.requires_grad_(grad), value.requires_grad_(grad)


def spans(lengths: tuple[int, ...] = LENGTHS, *, causal: bool = False) -> SequenceLayout:
    return SequenceLayout(torch.tensor([0, *lengths]).cumsum(0), lengths, causal)


def plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    masks: list[Tensor] | None = None,
    *,
    causal: bool = False,
) -> Tensor:
    """Equation 1 of Vaswani et al. 2017, word for word, a sequence and a head at a time."""
    out, begin = [], 0
    for number, length in enumerate(LENGTHS):
        part = slice(begin, begin + length)
        begin += length
        heads = []
        for head in range(HEADS):
            scores = query[part, head] @ key[part, head].T / math.sqrt(WIDTH)
            seen = scores.exp().tril() if causal else scores.exp()
            weights = seen / seen.sum(-1, keepdim=True)
            if masks:
                weights = weights * masks[number][head]
            heads.append(weights @ value[part, head])
        out.append(torch.stack(heads, 1))
    return torch.cat(out)


Way = Callable[[Inputs, SequenceLayout], Tensor]


def attend(each: Inputs, spans: SequenceLayout) -> Tensor:
    return spans.attend(*each)


def padded(each: Inputs, spans: SequenceLayout) -> Tensor:
    return spans._padded(*each, 0.0)


def one_by_one(each: Inputs, spans: SequenceLayout) -> Tensor:
    return spans._one_by_one(*each, spans.lengths)


every_way = pytest.mark.parametrize("way", [attend, padded, one_by_one])
both_directions = pytest.mark.parametrize("causal", [False, True])


@every_way
@both_directions
@pytest.mark.parametrize("grad", [False, True])
def test_every_way_gives_the_plain_formula(way: Way, causal: bool, grad: bool) -> None:
    expected = plain(*inputs(torch.float64), causal=causal)
    found = way(inputs(grad=grad), spans(causal=causal))
    assert found.shape == (TOKENS, HEADS, WIDTH)
    close_to_float64(found, expected)


@every_way
@both_directions
def test_every_way_has_the_gradients_of_the_plain_formula(way: Way, causal: bool) -> None:
    exact, rough = inputs(torch.float64, grad=True), inputs(grad=True)
    weights = torch.randn(TOKENS, HEADS, WIDTH, generator=torch.Generator().manual_seed(9))
    (plain(*exact, causal=causal) * weights.double()).sum().backward()
    (way(rough, spans(causal=causal)) * weights).sum().backward()
    for expected, found in zip(exact, rough, strict=True):
        assert expected.grad is not None
        assert found.grad is not None
        close_gradients(found.grad, expected.grad)


# places of the first and the three last sequences, none of the second
PLACES = (0, 5, 12, 14, 15, 16, 17, 18, 19, 20, 23, 41)


@pytest.mark.parametrize("grad", [False, True])
def test_some_of_the_queries_see_what_they_see_among_all(grad: bool) -> None:
    exact, rough = inputs(torch.float64, grad=True), inputs(grad=grad)
    at = torch.tensor(PLACES)
    found = spans().attend(rough[0][at], rough[1], rough[2], selected=at)
    expected = plain(*exact)[at]
    close_to_float64(found, expected)
    if grad:
        weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(9))
        (expected * weights.double()).sum().backward()
        (found * weights).sum().backward()
        for mine, other in zip(rough, exact, strict=True):
            assert mine.grad is not None
            assert other.grad is not None
            close_gradients(mine.grad, other.grad)


@both_directions
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_backward_pass_is_the_derivative_of_the_forward_pass(
    dropout: float, causal: bool
) -> None:
    lengths = (4, 1, 3)
    generator = torch.Generator().manual_seed(2)
    query, key, value = (
        torch.randn(8, 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(3)
    )

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        torch.manual_seed(6)  # the same weights dropped each time
        return spans(lengths, causal=causal).attend(query, key, value, dropout)

    assert torch.autograd.gradcheck(run, (query, key, value))


@both_directions
def test_dropped_weights_have_the_gradients_of_the_plain_formula(
    monkeypatch: pytest.MonkeyPatch, causal: bool
) -> None:
    made: list[Tensor] = []

    def remembered(like: Tensor, share: float) -> Tensor:
        made.append(original(like, share))
        return made[-1]

    original = dropout_module.dropout_mask
    monkeypatch.setattr(cpu, "dropout_mask", remembered)
    rough, exact = inputs(grad=True), inputs(torch.float64, grad=True)
    found = spans(causal=causal).attend(*rough, 0.25)
    # all five sequences are shorter than 32, and so computed at once, in two rows of 32
    assert [item.shape for item in made] == [(2, HEADS, 32, 32)]
    kept = (made[0] != 0).double() * dropout_scale(0.25)
    rows = group(LENGTHS, HEADS).keys.back
    assert rows is not None
    masks = []
    for part in rows.split(LENGTHS):
        inside = slice(int(part[0]) % 32, int(part[-1]) % 32 + 1)
        masks.append(kept[int(part[0]) // 32, :, inside, inside])
    expected = plain(*exact, masks=masks, causal=causal)
    close_to_float64(found, expected)
    weights = torch.randn(TOKENS, HEADS, WIDTH, generator=torch.Generator().manual_seed(9))
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for mine, other in zip(rough, exact, strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        close_gradients(mine.grad, other.grad)


def test_a_sequence_sees_itself_only() -> None:
    query, key, value = inputs()
    before = spans().attend(query, key, value)
    key[14:21] += 1
    value[14:21] -= 1
    after = spans().attend(query, key, value)
    same = (before == after).flatten(1).all(1)
    assert same.tolist() == [not 14 <= token < 21 for token in range(TOKENS)]


@pytest.mark.parametrize("grad", [False, True])
def test_a_causal_token_sees_nothing_after_it(grad: bool) -> None:
    query, key, value = inputs(grad=grad)
    before = spans(causal=True).attend(query, key, value)
    later = torch.arange(TOKENS) == 18
    after = spans(causal=True).attend(
        query, key + later[:, None, None].float(), value - later[:, None, None].float()
    )
    same = (before == after).flatten(1).all(1)
    assert same.tolist() == [not 18 <= token < 21 for token in range(TOKENS)]


def test_bf16_training_is_close_to_float32() -> None:
    exact = inputs(grad=True)
    rough = inputs(torch.bfloat16, grad=True)
    found, expected = spans().attend(*rough), spans().attend(*exact)
    assert found.dtype == torch.bfloat16
    assert float(((found - expected).norm() / expected.norm()).detach()) < 1e-2
    expected.sum().backward()
    found.sum().backward()
    for mine, other in zip(rough, exact, strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        assert mine.grad.dtype == torch.bfloat16
        assert float((mine.grad - other.grad).norm() / other.grad.norm()) < 3e-2


@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 3)])
def test_torch_still_has_the_kernel_for_gpus(causal: bool, window: int | None) -> None:
    """It is no public function; tensors without numbers show that it takes what it is given."""
    query, key, value = (item.to("meta") for item in inputs(torch.bfloat16))
    lacking = SequenceLayout(spans().offsets.to("meta"), LENGTHS, causal, window)
    assert lacking._flash(query, key, value, 0.1, None).shape == (TOKENS, HEADS, WIDTH)
    at = torch.tensor(PLACES)
    assert lacking._flash(query[at], key, value, 0.1, at.to("meta")).shape[0] == len(PLACES)
