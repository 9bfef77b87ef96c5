"""Cross-entropy in slices against float64, its gradient included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertsmith.objectives import cross_entropy as module
from bertsmith.objectives.cross_entropy import cross_entropy, linear_cross_entropy
from bounds import close_losses

ROWS, CLASSES = 29, 41


@pytest.fixture(params=[1, 7, 1000])
def targets_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "_LOGITS", request.param * CLASSES + 3)
    return int(request.param)


def inputs(kind: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = (torch.randn(ROWS, CLASSES, generator=generator) * 3).to(kind)
    return logits.requires_grad_(), torch.randint(CLASSES, (ROWS,), generator=generator)


@pytest.mark.usefixtures("targets_at_once")
@pytest.mark.parametrize(("kind", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-7)])
def test_loss_and_gradient_are_those_of_float64(kind: torch.dtype, bound: float) -> None:
    logits, labels = inputs(kind)
    exact = logits.detach().double().requires_grad_()
    loss = cross_entropy(logits, labels)
    expected = F.cross_entropy(exact, labels, reduction="sum")
    assert loss.sum.dtype == torch.float32
    close_losses(loss.sum, expected)
    assert int(loss.correct) == int((exact.argmax(-1) == labels).sum())
    (loss.sum / 3).backward()
    (expected / 3).backward()
    assert logits.grad is not None
    assert exact.grad is not None
    assert logits.grad.dtype == kind
    # it is rounded twice, each time relative to the value
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=bound, atol=bound / 100)
    assert logits.grad.double().norm() == pytest.approx(float(exact.grad.norm()), rel=bound / 8)


@pytest.mark.usefixtures("targets_at_once")
def test_what_overflows_and_what_is_no_number() -> None:
    large = torch.tensor([[3e4, -3e4, 0.0], [-3e4, 3e4, 3e4]], requires_grad=True)
    loss = cross_entropy(large, torch.tensor([1, 1]))
    assert loss.sum.item() == pytest.approx(6e4 + 0.6931472, abs=0.01)
    # the second is a tie
    assert int(loss.correct) == 0
    loss.sum.backward()
    assert large.grad is not None
    assert large.grad.tolist() == [[1, -1, 0], [0, -0.5, 0.5]]
    nothing = torch.tensor([[float("nan"), 1.0], [1.0, 2.0]])
    assert cross_entropy(nothing, torch.tensor([0, 1])).sum.isnan()


def test_logits_stay_as_they_are_and_nothing_is_kept_without_gradient() -> None:
    logits, labels = inputs(torch.bfloat16)
    before = logits.detach().clone()
    cross_entropy(logits, labels)
    assert torch.equal(logits, before)
    assert not cross_entropy(logits.detach(), labels).sum.requires_grad
    assert cross_entropy(logits[:0], labels[:0]).sum.item() == 0


@pytest.mark.usefixtures("targets_at_once")
@pytest.mark.parametrize("spare", [0, 3])
@pytest.mark.parametrize(("kind", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_with_the_last_layer_it_is_that_of_its_logits(
    kind: torch.dtype, bound: float, spare: int
) -> None:
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(ROWS + spare, 13, generator=generator).requires_grad_()
    table = torch.randn(CLASSES, 13, generator=generator).requires_grad_()
    bias = torch.randn(CLASSES, generator=generator).requires_grad_()
    labels = torch.randint(CLASSES, (ROWS,), generator=generator)
    exact = [each.detach().double().requires_grad_() for each in (features, table, bias)]
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == torch.bfloat16):
        losses = [linear_cross_entropy(features, table, bias, labels) for _ in range(2)]
    logits = F.linear(exact[0][:ROWS], exact[1], exact[2])
    expected = F.cross_entropy(logits, labels, reduction="sum")
    assert losses[0].count == ROWS
    assert losses[0].sum.item() == losses[1].sum.item()
    assert losses[0].sum.item() == pytest.approx(expected.item(), rel=bound)
    assert abs(int(losses[0].correct) - int((logits.argmax(-1) == labels).sum())) <= 100 * bound
    # both are alive at once, and so in memory of their own
    (losses[0].sum / 5).backward()
    (losses[1].sum / 5).backward()
    (expected * 2 / 5).backward()
    for mine, other in zip((features, table, bias), exact, strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        assert mine.grad.dtype == torch.float32
        error = (mine.grad - other.grad).norm() / other.grad.norm()
        assert float(error) < bound
