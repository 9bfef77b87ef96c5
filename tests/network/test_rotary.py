"""Turning by a position, against complex numbers in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bertsmith.network.attention.layout import SequenceLayout
from bertsmith.network.attention.rotary import rotation
from bounds import close_to_float64

POSITIONS = torch.tensor([0, 1, 2, 3, 0, 1, 977])
HEADS, WIDTH, THETA = 3, 10, 160_000.0


def values(seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(POSITIONS), HEADS, WIDTH, generator=generator, dtype=torch.float64)


def by_complex_numbers(given: Tensor, positions: Tensor = POSITIONS) -> Tensor:
    """Su et al. 2021, section 3.2.2: entries i and i + head / 2 as one number, times e^(i m t)."""
    first, second = given.chunk(2, -1)
    frequency = THETA ** (-2 * torch.arange(WIDTH // 2, dtype=torch.float64) / WIDTH)
    angle = positions.double()[:, None, None] * frequency
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], -1)


@pytest.mark.parametrize(
    ("kind", "bound"), [(torch.float32, 2e-4), (torch.bfloat16, 2e-2), (torch.float64, 2e-4)]
)
def test_values_are_turned_by_their_position(kind: torch.dtype, bound: float) -> None:
    found = rotation(POSITIONS, WIDTH, THETA).rotate(values().to(kind))
    assert found.dtype == kind
    # an angle of 977 in float32 is 3e-5 off
    assert float((found - by_complex_numbers(values())).abs().max()) < bound


def test_the_gradient_is_turned_back() -> None:
    turns = rotation(POSITIONS, WIDTH, THETA)
    assert torch.autograd.gradcheck(turns.rotate, (values().requires_grad_(),))


def test_only_the_distance_counts() -> None:
    query, key = values(1)[:1].float(), values(2)[:1].float()
    products = [
        (
            rotation(torch.tensor([at]), WIDTH, THETA).rotate(query)
            * rotation(torch.tensor([at + 5]), WIDTH, THETA).rotate(key)
        ).sum()
        for at in (0, 3, 90)
    ]
    assert float(max(products) - min(products)) < 1e-4
    other = rotation(torch.tensor([4]), WIDTH, THETA).rotate(key)
    assert float((query * other).sum() - products[0]) ** 2 > 1e-4


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("at", [None, (0, 2, 5, 6)])
def test_attention_turns_queries_and_keys(grad: bool, at: tuple[int, ...] | None) -> None:
    lengths = (4, 3)
    positions = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    offsets = torch.tensor([0, 4, 7])
    query, key, value = (values(seed).float().requires_grad_(grad) for seed in (1, 2, 3))
    turned = SequenceLayout(offsets, lengths, rotation=rotation(positions, WIDTH, THETA))
    first, second = (by_complex_numbers(values(seed), positions).float() for seed in (1, 2))
    expected = SequenceLayout(offsets, lengths).attend(first, second, value)
    places = None if at is None else torch.tensor(at)
    query = query if places is None else query[places]
    found = turned.attend(*turned.rotated(query, key, places), value, selected=places)
    picked = expected if places is None else expected[places]
    close_to_float64(found, picked)
