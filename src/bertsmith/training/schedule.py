"""The pace of training: what share of its budget is spent after each step.

A budget of steps is counted. A budget of minutes is the wall clock's, from the start of the command
to the saved model: what comes after training is reserved, so are the measurements that are still
due, and the steps share what is left. After a step of t seconds, of which L were left, the rest of
the share shrinks by t / L. So the share reaches 1 when the time is over, whatever the pauses, and
the learning rate neither jumps over a pause nor ends before it has fallen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from bertsmith.core.clock import Clock
from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.training.distribution import World
from bertsmith.training.run.checkpoints import State


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


@dataclass(frozen=True, kw_only=True)
class Costs(Config):
    """What a budget of minutes pays for besides steps, in seconds."""

    measurement: float = 0.0
    """One measurement on held-out text, until one has been made and timed."""
    checkpoint: float = 0.0
    """A checkpoint, until one has been written and timed."""
    afterwards: float = 0.0
    """What follows training: evaluation, saving, the report."""

    def total(self, measurements: int) -> float:
        """All that so many measurements leave to the steps no more."""
        return measurements * self.measurement + self.checkpoint + self.afterwards


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When a budget of minutes began, and what it pays for besides steps."""

    clock: Clock
    """The clock that counts."""
    costs: Costs = Costs()
    """What is not spent on steps."""


class Pacing:
    """Tells the share of a budget that is spent; rank 0's clock decides for all ranks."""

    def __init__(
        self,
        budget: Budget,
        timing: Timing,
        world: World,
        measurements_left: Callable[[State], int],
        checkpoint_seconds: Callable[[], float | None],
    ) -> None:
        """`checkpoint_seconds` is what the last checkpoint took, None before the first one."""
        self._budget = budget
        self._clock = timing.clock
        self._world = world
        self._costs = timing.costs
        self._measurements_left = measurements_left
        self._checkpoint_seconds = checkpoint_seconds
        self._measurement = timing.costs.measurement
        # seconds that were left for steps when the share was last told
        self._left = 0.0

    def spent(self, state: State) -> float:
        """The share of the budget that is spent, 0 to 1."""
        return self._budget.progress(state.step) if self._budget.steps else state.spent

    def now(self) -> float:
        """Seconds on the clock, of which differences tell what something took."""
        return self._clock.elapsed

    def begin(self, state: State) -> State:
        """Return the state at the beginning of a sitting, what was found in a checkpoint or new."""
        self._clock.resume(state.elapsed)
        # a run that has ended stays as it is
        return replace(self.paused(state), elapsed=state.elapsed)

    def stepped(self, state: State, seconds: float) -> State:
        """Return the state after a step that took so many seconds, the same on every rank."""
        before = self._left
        state = self._told(state)
        if self._budget.steps:
            return state
        # a step more than half of which lies beyond the end is not begun
        over = before <= 0 or self._left <= seconds / 2
        share = 1.0 if over else 1 - (1 - state.spent) * min(1.0, self._left / before)
        return replace(state, spent=share)

    def paused(self, state: State, seconds: float | None = None) -> State:
        """Return the state after a pause; one of so many `seconds` was a measurement."""
        if seconds is not None:
            self._measurement = seconds
        state = self._told(state)
        # a run of no step at all would save what it began with
        over = not self._budget.steps and self._left <= 0 and state.step > 0
        return replace(state, spent=1.0) if over else state

    def _told(self, state: State) -> State:
        """Take note of the time on rank 0's clock."""
        now = [self._clock.elapsed, self._for_steps(state)] if self._world.first else [0.0, 0.0]
        elapsed, self._left = self._world.sum(now)
        return replace(state, elapsed=elapsed)

    def _for_steps(self, state: State) -> float:
        """The seconds left for steps; none of a budget of steps, which has no end in time."""
        if self._budget.minutes is None:
            return 0.0
        saving = self._checkpoint_seconds()
        saving = self._costs.checkpoint if saving is None else saving
        measuring = self._measurement * self._measurements_left(state)
        total = 60 * self._budget.minutes
        return total - self._clock.elapsed - saving - measuring - self._costs.afterwards
