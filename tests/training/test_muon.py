from __future__ import annotations

import pytest
import torch

from bertsmith.training import optimisers
from bertsmith.training.optimisers import Muon, orthogonalise
from bounds import close_to_float64

SHAPES = [(13, 13), (13, 13), (37, 13), (13, 37), (5, 7)]


def matrices(seed: int) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


@pytest.fixture
def bf16(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A device that multiplies bf16, or one that would emulate it."""
    monkeypatch.setattr(optimisers, "multiplies_bf16", lambda device: request.param)


@pytest.mark.parametrize("bf16", [True], indirect=True)
@pytest.mark.usefixtures("bf16")
def test_steps_are_those_of_torch() -> None:
    ours, theirs = matrices(1), matrices(1)
    both = (
        Muon(ours, lr=0.03, weight_decay=0.1, momentum=0.9),
        torch.optim.Muon(theirs, lr=0.03, weight_decay=0.1, momentum=0.9),
    )
    start = [parameter.detach().clone() for parameter in ours]
    generator = torch.Generator().manual_seed(2)
    for _ in range(4):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator) * 1e-3
            other.grad = one.grad.clone()
        for optimiser in both:
            optimiser.step()
    for one, other, before in zip(ours, theirs, start, strict=True):
        moved = (other - before).norm()
        assert moved > 0.05
        # both iterate in bfloat16, whose sums depend on how products are batched
        assert (one - other).norm() < 0.01 * moved


@pytest.mark.parametrize("bf16", [True, False], indirect=True)
@pytest.mark.usefixtures("bf16")
def test_singular_values_come_near_one() -> None:
    wide = torch.randn(3, 17, 41, generator=torch.Generator().manual_seed(3))
    values = torch.linalg.svdvals(orthogonalise(wide).float())
    assert values.min() > 0.6
    assert values.max() < 1.3


@pytest.mark.parametrize("bf16", [False], indirect=True)
@pytest.mark.usefixtures("bf16")
def test_iterations_are_in_float32_where_bf16_is_emulated() -> None:
    wide = torch.randn(3, 17, 41, generator=torch.Generator().manual_seed(3))
    exact = wide.double() / wide.double().norm(dim=(1, 2), keepdim=True)
    for _ in range(5):
        square = exact @ exact.mT
        exact = 3.4445 * exact + (-4.775 * square + 2.0315 * square @ square) @ exact
    close_to_float64(orthogonalise(wide), exact)


def test_a_matrix_without_gradient_stays() -> None:
    ours = matrices(4)
    before = [parameter.detach().clone() for parameter in ours]
    ours[1].grad = torch.ones(SHAPES[1])
    Muon(ours, lr=0.1).step()
    changed = [not torch.equal(a, b) for a, b in zip(ours, before, strict=True)]
    assert changed == [False, True, False, False, False]
