"""Cross-entropy, by the native kernels and in slices, against float64, its gradient included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertsmith.core import kernels
from bertsmith.objectives import cross_entropy as module
from bertsmith.objectives.cross_entropy import cross_entropy, linear_cross_entropy
from bounds import check, close_losses

ROWS, CLASSES = 29, 41


@pytest.fixture(params=[*kernels.instruction_sets(), 1, 7, 1000])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | int:
    """By kernels of an instruction set, or without any, so many targets at once."""
    chosen: str | int = request.param
    kernel = chosen if isinstance(chosen, str) else None
    monkeypatch.setattr(kernels, "instruction_set", lambda: kernel)
    if isinstance(chosen, int):
        monkeypatch.setattr(module, "_LOGITS", chosen * CLASSES + 3)
    return chosen


def inputs(kind: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = (torch.randn(ROWS, CLASSES, generator=generator) * 3).to(kind)
    return logits.requires_grad_(), torch.randint(CLASSES, (ROWS,), generator=generator)


@pytest.mark.usefixtures("way")
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


@pytest.mark.usefixtures("way")
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


@pytest.mark.usefixtures("way")
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
    exact = [item.detach().double().requires_grad_() for item in (features, table, bias)]
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


@pytest.mark.usefixtures("way")
def test_what_lay_in_the_memory_before_does_not_matter() -> None:
    """The memory of one loss is that of the next, whose rows are as long as is fast."""
    for value in (torch.nan, 1.0):
        features = torch.full((8, 13), value, requires_grad=True)
        table = torch.zeros(CLASSES, 13, requires_grad=True)
        loss = linear_cross_entropy(features, table, torch.zeros(CLASSES), torch.arange(8))
        loss.sum.backward()
    # every class is as likely, and has a target or none
    slope = 8 / CLASSES - (torch.arange(CLASSES) < 8).double()
    assert table.grad is not None
    check(table.grad, slope[:, None].expand(-1, 13), 1e-5)


@pytest.mark.parametrize("own", [False, True])
def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    """Those of torch or our own, nor do they lose a row; the rows do not divide by the threads."""
    if own:
        monkeypatch.setattr(module, "torch_parallel", lambda: None)
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(203, 13, generator=generator).requires_grad_()
    table = torch.randn(4_001, 13, generator=generator).requires_grad_()
    bias = torch.randn(4_001, generator=generator).requires_grad_()
    labels = torch.randint(4_001, (203,), generator=generator)
    logits = F.linear(features.detach().double(), table.detach().double(), bias.detach().double())
    slopes = logits.softmax(-1) - F.one_hot(labels, 4_001)
    found, bound = [], 2**-17
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        loss = linear_cross_entropy(features, table, bias, labels)
        gradients = torch.autograd.grad(loss.sum / 7, [features, table, bias])
        torch.testing.assert_close(gradients[2].double(), slopes.sum(0) / 7, rtol=bound, atol=bound)
        found.append([loss.sum, loss.correct, *gradients])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("classes", [1, 2, 15, 16, 17, 31, 33, 30_522])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_any_number_of_classes(kind: torch.dtype, classes: int) -> None:
    """Sums of thirty thousand too, and classes that fill no vector."""
    generator = torch.Generator().manual_seed(classes)
    logits = (torch.randn(5, classes, generator=generator) * 4).to(kind)
    labels = torch.randint(classes, (5,), generator=generator)
    given = logits.clone().requires_grad_()
    exact = logits.double().requires_grad_()
    loss = cross_entropy(given, labels)
    expected = F.cross_entropy(exact, labels, reduction="sum")
    loss.sum.backward()
    expected.backward()
    assert given.grad is not None
    assert exact.grad is not None
    assert loss.sum.item() == pytest.approx(expected.item(), rel=2e-6, abs=2e-6)
    others = logits.double().scatter(1, labels[:, None], -torch.inf).amax(1)
    own = logits.double().gather(1, labels[:, None])[:, 0]
    assert int(loss.correct) == int((own > others).sum())
    bound = 2e-6 if kind == torch.float32 else 2**-8
    torch.testing.assert_close(given.grad.double(), exact.grad, rtol=bound, atol=1e-9 + bound / 50)


@pytest.mark.usefixtures("way")
def test_logits_that_are_infinite() -> None:
    logits = torch.tensor([[1.0, -torch.inf, 2.0], [-torch.inf] * 3, [torch.inf, 0.0, 1.0]])
    found = [cross_entropy(logit[None], torch.tensor([0])).sum.item() for logit in logits]
    assert found[0] == pytest.approx(1.3132617)
    assert found[1] != found[1]
    assert found[2] != found[2]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("place", [0, 20, 40])
def test_a_value_that_is_no_number_is_seen_wherever_it_is(place: int) -> None:
    logits, labels = inputs(torch.float32)
    broken = logits.detach().clone()
    broken[3, place] = torch.nan
    assert cross_entropy(broken, labels).sum.isnan()


@pytest.mark.usefixtures("way")
def test_labels_that_are_no_class_are_refused() -> None:
    logits, labels = inputs(torch.float32)
    for wrong in (-1, CLASSES):
        labels[2] = wrong
        with pytest.raises((IndexError, RuntimeError)):
            cross_entropy(logits, labels)


def test_threads_and_neighbours_do_not_matter() -> None:
    """Each row by itself is what it is among all, to the bit, in any number of threads."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(64, 9000, generator=generator).requires_grad_()
    labels = torch.randint(9000, (64,), generator=generator)
    before, gradients = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            (gradient,) = torch.autograd.grad(cross_entropy(logits, labels).sum, logits)
            gradients.append(gradient)
        alone = [cross_entropy(logits[n : n + 1], labels[n : n + 1]).sum for n in range(64)]
        (last,) = torch.autograd.grad(torch.stack(alone).sum(), logits)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], last)
