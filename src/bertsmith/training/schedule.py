"""The learning rate schedule and the progress of training: the spent share of its budget.

A budget of steps is counted. A budget of minutes is wall-clock time, from the start of the command
to the saved model: time for what follows training and for the remaining measurements is reserved,
and the steps share the rest. After a step of t seconds, with L seconds left before it, the unspent
share shrinks by t / L. So the spent share reaches 1 when the time is over, whatever the pauses, and
the learning rate neither jumps at a pause nor ends before it has decayed. Measurements that take
longer than planned, as on a machine that has become busy, are left out rather than steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bertsmith.core.clock import Clock
from bertsmith.core.config import Config
from bertsmith.training.checkpoints import State
from bertsmith.training.config import Budget
from bertsmith.training.distribution import World

# share of the minutes that measurements during training may take at most
_MEASURING = 0.2


@dataclass(frozen=True, kw_only=True)
class Costs(Config):
    """The costs of a budget of minutes besides steps, in seconds."""

    measurement: float = 0.0
    """One measurement on held-out text, until one has been made and timed."""
    checkpoint: float = 0.0
    """A checkpoint, until one has been written and timed."""
    afterwards: float = 0.0
    """Seconds after training: evaluation, saving, the report."""

    def total(self, measurements: int) -> float:
        """Return the total time not available to steps, with the given number of measurements."""
        return measurements * self.measurement + self.checkpoint + self.afterwards


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The clock of a budget of minutes, and its costs besides steps."""

    clock: Clock
    """Clock of the budget."""
    costs: Costs = Costs()
    """Time not spent on steps."""


class Pacing:
    """Tracks the spent share of a budget; rank 0's clock decides for all ranks."""

    def __init__(
        self,
        budget: Budget,
        timing: Timing,
        world: World,
        measurements_left: Callable[[State], int],
        checkpoint_seconds: Callable[[], float | None],
    ) -> None:
        """`checkpoint_seconds` returns the last checkpoint's duration, None before the first."""
        self._budget = budget
        self._clock = timing.clock
        self._world = world
        self._costs = timing.costs
        self._measurements_left = measurements_left
        self._checkpoint_seconds = checkpoint_seconds
        self._measurement = timing.costs.measurement
        # seconds of all measurements of this session
        self._measuring = 0.0
        # seconds that were left for steps at the last update
        self._left = 0.0

    def spent(self, state: State) -> float:
        """Return the spent share of the budget, 0 to 1."""
        return self._budget.progress(state.step) if self._budget.steps else state.spent

    def seconds_left(self, state: State) -> float:
        """Return the seconds that are left for steps; of a number of steps, at their mean speed."""
        if self._budget.steps:
            return (self._budget.steps - state.step) * state.seconds / max(state.step, 1)
        return self._left

    def now(self) -> float:
        """Return the seconds on the clock; differences are durations."""
        return self._clock.elapsed

    def begin(self, state: State) -> State:
        """Return the state at the beginning of a session, from a checkpoint or new."""
        self._clock.resume(state.elapsed)
        # a finished run keeps its state
        return replace(self.paused(state), elapsed=state.elapsed)

    def stepped(self, state: State, seconds: float) -> State:
        """Return the state after a step of `seconds`, equal on every rank."""
        before = self._left
        state = self._with_elapsed(state)
        if self._budget.steps:
            return state
        # no step is begun of which more than half lies beyond the end
        over = before <= 0 or self._left <= seconds / 2
        share = 1.0 if over else 1 - (1 - state.spent) * min(1.0, self._left / before)
        return replace(state, spent=share)

    def paused(self, state: State, seconds: float | None = None) -> State:
        """Return the state after a pause; with `seconds` it was a measurement."""
        if seconds is not None:
            self._measurement = seconds
            self._measuring += seconds
        state = self._with_elapsed(state)
        # a run without a single step would save an untrained model
        over = not self._budget.steps and self._left <= 0 and state.step > 0
        return replace(state, spent=1.0) if over else state

    def can_measure(self) -> bool:
        """Return whether a measurement that takes as long as the last one fits, on every rank.

        A budget of steps has time for all of them.
        """
        if self._budget.minutes is None:
            return True
        return not self._world.any(self._measurement > self._seconds_for_measuring())

    def _seconds_for_measuring(self) -> float:
        """Return the seconds left for measurements in a budget of minutes."""
        assert self._budget.minutes is not None
        return max(0.0, 60 * self._budget.minutes * _MEASURING - self._measuring)

    def _with_elapsed(self, state: State) -> State:
        """Record the time on rank 0's clock."""
        now = (
            [self._clock.elapsed, self._seconds_for_steps(state)]
            if self._world.first
            else [0.0, 0.0]
        )
        elapsed, self._left = self._world.sum(now)
        return replace(state, elapsed=elapsed)

    def _seconds_for_steps(self, state: State) -> float:
        """Return the seconds left for steps; 0 for a budget of steps, which has no deadline."""
        if self._budget.minutes is None:
            return 0.0
        saving = self._checkpoint_seconds()
        saving = self._costs.checkpoint if saving is None else saving
        measuring = min(
            self._measurement * self._measurements_left(state), self._seconds_for_measuring()
        )
        total = 60 * self._budget.minutes
        return total - self._clock.elapsed - saving - measuring - self._costs.afterwards
