"""Figures of training, summed between two lines of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from bertsmith.batches.batch import Batch
from bertsmith.log import short_number
from bertsmith.models.flops import training_flops, work_of
from bertsmith.models.model import ModelConfig
from bertsmith.objectives.losses import Losses
from bertsmith.training.checkpoints import State


def batch_flops(config: ModelConfig, batch: Batch) -> float:
    """Operations that training a model on a batch needs."""
    return training_flops(config, work_of(batch, window=config.encoder.window, last_needed=True))


@dataclass
class Figures:
    """Sums over the steps since the last line."""

    steps: int = 0
    tokens: int = 0
    drawn: int = 0
    padding: int = 0
    flops: float = 0.0
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

    def add_work(self, config: ModelConfig, drawn: Sequence[Batch]) -> None:
        """Count what the batches that this process drew for a step ask of a model."""
        for batch in drawn:
            self.drawn += batch.tokens
            # what the batch holds that belongs to none of its sequences
            self.padding += batch.tokens - sum(batch.lengths)
            self.flops += batch_flops(config, batch)

    def add_step(self, tokens: int, seconds: float, norm: float | None) -> None:
        """Count one step, without a norm if it was skipped: only its tokens and time count then."""
        self.tokens += tokens
        self.seconds += seconds
        if norm is not None:
            self.steps += 1
            self.norm += norm

    def line(self, state: State, rate: float, peak: float) -> dict[str, float]:
        """One line of the log: means since the last one, totals since the start.

        `peak` is the machine's, in operations a second; `mfu` the share of it that the model's own
        operations take (Chowdhery et al. 2022, appendix B).
        """
        seconds = max(self.seconds, 1e-9)
        line = {
            "step": state.step,
            "epoch": state.place.epoch,
            "phase": state.place.phase,
            "seconds": round(state.seconds, 3),
            "tokens": state.tokens,
            "tokens_per_second": round(self.tokens / seconds),
            "padding": self.padding / max(self.drawn, 1),
            "mfu": round(self.flops / seconds / peak, 4),
            "peak_gflops": round(peak / 1e9, 1),
            "rate": rate,
            "skipped": state.skipped,
        }
        if self.steps:
            line["gradient_norm"] = self.norm / self.steps
        for name, count in self.counts.items():
            if count:
                line[f"{name}_loss"] = float(self.sums[name]) / count
                line[f"{name}_accuracy"] = float(self.correct[name]) / count
        return line

    def note(self, line: dict[str, float]) -> str:
        """The live figures that stand beside the bar."""
        shown = [
            f"step {line['step']}",
            f"{short_number(line['tokens_per_second'])} tokens/s",
            f"padding {100 * line['padding']:.0f} %",
            f"MFU {100 * line['mfu']:.0f} %",
        ]
        for name in self.counts:
            if f"{name}_loss" in line:
                loss, accuracy = line[f"{name}_loss"], line[f"{name}_accuracy"]
                words = name.replace("_lm", " LM").replace("_", " ")
                shown.append(f"{words} {loss:.3f} ({100 * accuracy:.0f} %)")
        if line["skipped"]:
            shown.append(f"{line['skipped']} skipped")
        return " · ".join(shown)
