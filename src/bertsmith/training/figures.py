"""Figures of training, summed between two lines of the log."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from bertsmith.log import short_number
from bertsmith.objectives.losses import Losses
from bertsmith.training.checkpoints import State


@dataclass
class Figures:
    """Sums over the steps since the last line."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    norm: float = 0.0
    sums: dict[str, Tensor] = field(default_factory=dict)
    correct: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add_losses(self, losses: Losses) -> None:
        """Count one batch's losses; tensors stay on their device until the line is written."""
        for name, loss in losses.parts.items():
            self.sums[name] = self.sums.get(name, 0) + loss.sum.detach()
            self.correct[name] = self.correct.get(name, 0) + loss.correct
            self.counts[name] = self.counts.get(name, 0) + loss.count

    def add_step(self, tokens: int, seconds: float, norm: float) -> None:
        """Count one step."""
        self.steps += 1
        self.tokens += tokens
        self.seconds += seconds
        self.norm += norm

    def line(self, state: State, rate: float) -> dict[str, float]:
        """One line of the log: means since the last one, totals since the start."""
        line = {
            "step": state.step,
            "epoch": state.place.epoch,
            "seconds": round(state.seconds, 3),
            "tokens": state.tokens,
            "tokens_per_second": round(self.tokens / self.seconds),
            "rate": rate,
            "gradient_norm": self.norm / self.steps,
        }
        for name, count in self.counts.items():
            if count:
                line[f"{name}_loss"] = float(self.sums[name]) / count
                line[f"{name}_accuracy"] = float(self.correct[name]) / count
        return line

    def note(self, line: dict[str, float]) -> str:
        """The live figures that stand beside the bar."""
        shown = [f"step {line['step']}", f"{short_number(line['tokens_per_second'])} tokens/s"]
        for name in self.counts:
            if f"{name}_loss" in line:
                loss, accuracy = line[f"{name}_loss"], line[f"{name}_accuracy"]
                shown.append(f"{name} {loss:.3f} ({100 * accuracy:.0f} %)")
        return " · ".join(shown)
