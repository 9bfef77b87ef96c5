"""Attention on a GPU, every backend and every width of a head, against the formula in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bertsmith.network.attention.layout import SequenceLayout
from bertsmith.network.attention.reference import attention_weights
from bounds import check

LENGTHS = (13, 300, 1, 21, 64, 129, 22)
TOKENS, HEADS = sum(LENGTHS), 3
# none of the second-last sequence, the last token of the last
SELECTED = (0, 12, 13, 40, 41, 200, 312, 313, 314, 400, 420, TOKENS - 1)
BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 2e-2}

kinds = pytest.mark.parametrize("kind", list(BOUNDS), ids=str)
# kernels ask for multiples of eight; heads of 5 and of 20 are legal
widths = pytest.mark.parametrize("width", [64, 8, 20, 5])
views = pytest.mark.parametrize("seen", [{}, {"causal": True}, {"window": 20}], ids=str)


def inputs(width: int, kind: torch.dtype) -> list[Tensor]:
    """Queries, keys and values on the host, whose numbers `kind` holds exactly."""
    generator = torch.Generator().manual_seed(2)
    return [
        torch.randn(TOKENS, HEADS, width, generator=generator).to(kind).double() for _ in range(3)
    ]


def layout(*, causal: bool = False, window: int | None = None, cuda: bool) -> SequenceLayout:
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0)
    return SequenceLayout(offsets.cuda() if cuda else offsets, LENGTHS, causal, window)


def expected(parts: list[Tensor], **seen: bool | int | None) -> Tensor:
    """The formula in float64 (the reference backend is tested against it on the host)."""
    query, key, value = parts
    weights = attention_weights(query, key, LENGTHS, **{"causal": False, "window": None} | seen)  # type: ignore[arg-type]
    rows = value.split(list(LENGTHS))
    return torch.cat(
        [
            torch.einsum("hqk,khw->qhw", weight, row)
            for weight, row in zip(weights, rows, strict=True)
        ]
    )


def check_outputs_and_gradients(
    found: Tensor, rough: list[Tensor], wanted: Tensor, exact: list[Tensor]
) -> None:
    """Compare an output, and the gradients of what it was computed from, with the formula's."""
    kind = found.dtype
    check(found, wanted, BOUNDS[kind])
    slope = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(9))
    (wanted * slope.double()).sum().backward()
    (found * slope.to(kind).cuda()).sum().backward()
    for mine, other in zip(rough, exact, strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        check(mine.grad, other.grad, 2 * BOUNDS[kind])


@kinds
@widths
@views
def test_every_backend_has_outputs_and_gradients_of_the_formula(
    kind: torch.dtype, width: int, seen: dict[str, int]
) -> None:
    exact = [part.requires_grad_() for part in inputs(width, kind)]
    rough = [part.detach().to(kind).cuda().requires_grad_() for part in exact]
    wanted = expected(exact, **seen)
    found = layout(cuda=True, **seen).attend(*rough)  # type: ignore[arg-type]
    assert found.dtype == kind
    check_outputs_and_gradients(found, rough, wanted, exact)


@kinds
@pytest.mark.parametrize("width", [64, 5])
@pytest.mark.parametrize("window", [None, 20])
def test_selected_queries_see_what_they_see_among_all(
    kind: torch.dtype, width: int, window: int | None
) -> None:
    exact = inputs(width, kind)
    at = torch.tensor(SELECTED)
    query, key, value = (part.to(kind).cuda() for part in exact)
    found = layout(window=window, cuda=True).attend(
        query[at.cuda()], key, value, selected=at.cuda()
    )
    check(found, expected(exact, window=window)[at], BOUNDS[kind])


@kinds
@views
def test_the_share_of_weights_is_dropped_and_the_rest_scaled(
    kind: torch.dtype, seen: dict[str, int]
) -> None:
    """With a value of one everywhere, an output is the sum of the weights that were kept."""
    query, key, _ = (part.to(kind).cuda() for part in inputs(64, kind))
    ones = torch.ones_like(query)
    torch.manual_seed(3)
    spans = layout(cuda=True, **seen)  # type: ignore[arg-type]
    sums = torch.stack([spans.attend(query, key, ones, 0.25).float() for _ in range(200)])
    long = sums[:, 13:313]
    assert float(long.mean()) == pytest.approx(1.0, abs=0.01)
    assert float(long.std(0).mean()) > 0.02
    # the only token of its sequence is kept three times of four, at 4/3
    alone = sums[:, 313].flatten()
    assert set(alone.mul(3).round().int().tolist()) == {0, 4}
    assert float((alone > 0).float().mean()) == pytest.approx(0.75, abs=0.08)


@kinds
@views
def test_dropped_weights_have_the_outputs_and_gradients_of_the_formula(
    kind: torch.dtype, seen: dict[str, int]
) -> None:
    """Values that say where they stand show which weights were dropped; the same seed drops them
    again."""
    share, width, lengths = 0.25, 64, (13, 64, 1, 40)
    offsets, total = torch.tensor([0, *lengths]).cumsum(0), sum(lengths)
    spans = SequenceLayout(offsets.cuda(), lengths, **seen)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(2)
    exact = [
        torch.randn(total, HEADS, width, generator=generator).to(kind).double().requires_grad_()
        for _ in range(3)
    ]
    rough = [part.detach().to(kind).cuda().requires_grad_() for part in exact]
    place = torch.cat([torch.arange(length) for length in lengths])
    where = torch.eye(width)[place][:, None].expand(-1, HEADS, -1).to(kind).cuda()
    torch.manual_seed(6)
    kept = spans.attend(rough[0], rough[1], where.contiguous(), share).detach().cpu() != 0
    shares = kept.float().mean()
    assert 0.1 < float(shares) < 0.75
    weights = attention_weights(
        exact[0], exact[1], lengths, causal=spans.causal, window=spans.window
    )
    wanted = torch.cat(
        [
            torch.einsum(
                "hqk,qhk,khw->qhw", weight, mask[..., : len(row)].double() / (1 - share), row
            )
            for weight, mask, row in zip(
                weights, kept.split(list(lengths)), exact[2].split(list(lengths)), strict=True
            )
        ]
    )
    torch.manual_seed(6)
    found = spans.attend(rough[0], rough[1], rough[2], share)
    check_outputs_and_gradients(found, rough, wanted, exact)


@kinds
def test_a_sequence_sees_itself_only(kind: torch.dtype) -> None:
    query, key, value = (part.to(kind).cuda() for part in inputs(64, kind))
    spans = layout(cuda=True)
    before = spans.attend(query, key, value)
    key[313:314] += 1
    value[313:314] -= 1
    after = spans.attend(query, key, value)
    same = (before == after).flatten(1).all(1).tolist()
    assert [token for token, is_same in enumerate(same) if not is_same] == [313]
