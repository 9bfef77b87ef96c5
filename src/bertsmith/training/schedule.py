"""How long training lasts, and how the learning rate moves over it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from bertsmith.config import Config
from bertsmith.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Budget(Config):
    """What a run may spend: steps, or minutes on the clock."""

    steps: int | None = None
    """Optimiser steps."""
    minutes: float | None = None
    """Minutes from the start of the command, or of its resumption, to the saved model: checks,
    measurements and saving are among them."""

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise ConfigError(
                "the budget needs either steps or minutes",
                remedy="give one of --steps and --minutes",
            )
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"steps is {self.steps}", remedy="it must be at least 1")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ConfigError(f"minutes is {self.minutes}", remedy="it must be above 0")

    def progress(self, step: int) -> float:
        """The share of the steps that is spent, 0 to 1."""
        assert self.steps is not None
        return min(step / self.steps, 1.0)


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig(Config):
    """The learning rate's way up and down, as shares of the budget."""

    warm_up: float = 0.1
    """Share of the budget in which the rate rises linearly from zero to its peak."""
    decay: Literal["linear", "cosine", "root", "none"] = "linear"
    """How the rate falls to zero: root is 1 less the root of the share of the decay that is over
    (Hägele et al. 2024); none keeps it."""
    hold: float = 0.0
    """Share of the budget, after the warm-up, in which the rate stays at its peak."""
    floor: float = 0.0
    """Share of the peak that the rate starts from and falls to; 1/32 with a warm-up of 0.1 is the
    slanted triangle of Howard & Ruder 2018 (ULMFiT), section 3.2."""

    def __post_init__(self) -> None:
        if min(self.warm_up, self.hold) < 0 or self.warm_up + self.hold > 1:
            raise ConfigError(f"warm_up {self.warm_up} and hold {self.hold} exceed the budget")
        if not 0 <= self.floor <= 1:
            raise ConfigError(f"floor is {self.floor}", remedy="it must be in [0, 1]")

    def factor(self, progress: float) -> float:
        """The share of the peak rate at some progress in [0, 1]."""
        return self.floor + (1 - self.floor) * self._height(progress)

    def _height(self, progress: float) -> float:
        if progress < self.warm_up:
            return progress / self.warm_up
        begin = self.warm_up + self.hold
        if self.decay == "none" or progress <= begin:
            return 1.0
        left = (1 - progress) / (1 - begin)
        if self.decay == "root":
            return 1 - math.sqrt(1 - left)
        return left if self.decay == "linear" else (1 - math.cos(math.pi * left)) / 2
