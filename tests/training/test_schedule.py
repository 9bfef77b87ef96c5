from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
    get_wsd_schedule,
)

from bertsmith.core.errors import ConfigError
from bertsmith.training.config import Budget, ScheduleConfig

shares = st.floats(0, 1)


def test_linear_warm_up_and_decay() -> None:
    schedule = ScheduleConfig(warmup=0.1)
    assert [schedule.factor(p) for p in (0, 0.05, 0.1, 0.55, 1)] == pytest.approx(
        [0, 0.5, 1, 0.5, 0]
    )


def test_hold_and_cosine() -> None:
    schedule = ScheduleConfig(warmup=0.0, hold=0.5, decay="cosine")
    assert [schedule.factor(p) for p in (0, 0.5, 0.75, 1)] == pytest.approx([1, 1, 0.5, 0])
    assert schedule.factor(0.625) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert ScheduleConfig(decay="none").factor(1.0) == 1.0


def test_root() -> None:
    """Hägele et al. 2024, section 3: 1 less the root of the share of the decay that is over."""
    schedule = ScheduleConfig(warmup=0.1, hold=0.5, decay="root")
    found = [schedule.factor(p) for p in (0.05, 0.1, 0.6, 0.7, 0.96, 1)]
    assert found == pytest.approx([0.5, 1, 1, 0.5, 1 - math.sqrt(0.9), 0])


@pytest.mark.parametrize("step", range(0, 201, 20))
def test_slanted_triangles_are_the_papers(step: int) -> None:
    """Howard & Ruder 2018, section 3.2, equation 3: 200 steps, cut_frac 0.1, ratio 32."""
    ratio, cut = 32, 20
    p = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / 0.1 - 1))
    found = ScheduleConfig(warmup=0.1, floor=1 / ratio).factor(step / 200)
    assert found == pytest.approx((1 + p * (ratio - 1)) / ratio)


@given(
    warm_up=shares,
    hold=shares,
    progress=shares,
    decay=st.sampled_from(["linear", "cosine", "root"]),
)
def test_factors_are_shares(warm_up: float, hold: float, progress: float, decay: str) -> None:
    if warm_up + hold <= 1:
        schedule = ScheduleConfig(warmup=warm_up, hold=hold, decay=decay)  # type: ignore[arg-type]
        assert 0 <= schedule.factor(progress) <= 1


def test_budgets() -> None:
    assert [Budget(steps=8).progress(step) for step in (0, 2, 8, 9)] == [0, 0.25, 1, 1]
    for wrong in ({}, {"steps": 3, "minutes": 1.0}, {"steps": 0}, {"minutes": -1.0}):
        with pytest.raises(ConfigError):
            Budget(**wrong)
    with pytest.raises(ConfigError):
        ScheduleConfig(warmup=0.7, hold=0.4)


def idle() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        (
            ScheduleConfig(warmup=0.1, decay="linear"),
            get_linear_schedule_with_warmup(idle(), 20, 200),
        ),
        (
            ScheduleConfig(warmup=0.1, decay="cosine"),
            get_cosine_schedule_with_warmup(idle(), 20, 200),
        ),
        (
            ScheduleConfig(warmup=0.1, decay="none"),
            get_constant_schedule_with_warmup(idle(), 20),
        ),
        # constant, then decay
        (
            ScheduleConfig(warmup=0.1, hold=0.6, decay="linear"),
            get_wsd_schedule(idle(), 20, 60, 200, decay_type="linear"),
        ),
        (
            ScheduleConfig(warmup=0.1, hold=0.6, decay="cosine"),
            get_wsd_schedule(idle(), 20, 60, 200, decay_type="cosine"),
        ),
    ],
)
def test_factors_are_those_of_transformers(schedule: ScheduleConfig, theirs: LambdaLR) -> None:
    for step in range(200):
        progress = Budget(steps=200).progress(step)
        assert schedule.factor(progress) == pytest.approx(theirs.lr_lambdas[0](step), abs=1e-9)


@pytest.mark.parametrize("name", ["warmup", "hold", "floor"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_shares_that_are_none_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"--{name} is {value}"):
        ScheduleConfig(**{name: value})  # type: ignore[arg-type]
