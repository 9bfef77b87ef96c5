"""Periodic measurements on held-out text during training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bertsmith.network.model import Model
from bertsmith.training.run.checkpoints import State

Measure = Callable[[Model, Callable[[], bool]], dict[str, float] | None]
"""Returns metrics by name, including ``NAME_loss``, {} without held-out text, or None if the second
argument reported a request to stop."""


class Measuring:
    """Measures `count` times, evenly over the budget, and tracks the best measurement.

    Training stops early after `stop_after` measurements in a row without improvement; 0 disables.
    """

    def __init__(self, measure: Measure | None, count: int, stop_after: int = 0) -> None:
        self._measure = measure
        self._count = count if measure is not None else 0
        self._stop_after = stop_after

    def enough(self, state: State) -> bool:
        """Return whether training has to stop early."""
        return 0 < self._stop_after <= state.worse

    def due(self, state: State, spent: float) -> bool:
        """Return whether a measurement is due when a share of the budget is spent."""
        return state.measured < self._wanted(spent)

    def left(self, state: State) -> int:
        """Return the number of remaining measurements if training does not stop early."""
        return self._count - state.measured

    def measure(
        self, model: Model, state: State, spent: float, stopping: Callable[[], bool]
    ) -> tuple[State, dict[str, float]] | None:
        """Return the state after a measurement, and a log record; None if stopped."""
        assert self._measure is not None
        figures = self._measure(model, stopping)
        if figures is None:
            return None
        state = replace(state, measured=self._wanted(spent))
        if not figures:
            return state, {}
        loss = sum(value for name, value in figures.items() if name.endswith("_loss"))
        if state.best_loss is None or loss < state.best_loss:
            state = replace(state, best_step=state.step, best_loss=loss, worse=0)
        else:
            state = replace(state, worse=state.worse + 1)
        line = {
            "step": state.step,
            "epoch": state.place.epoch,
            "seconds": round(state.seconds, 3),
            "tokens": state.tokens,
        }
        return state, line | {f"held_out_{name}": value for name, value in figures.items()}

    def _wanted(self, spent: float) -> int:
        return int(spent * self._count)
