"""The training state: everything that changes from step to step, measured, saved and restored.

Checkpoints are written while training runs: a copy is taken between two steps, and written by a
thread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bertsmith.batches import DataPosition
from bertsmith.core.errors import RunFolderError
from bertsmith.core.log import say, short_number
from bertsmith.network.batch import Batch
from bertsmith.network.config import ModelConfig
from bertsmith.network.flops import training_flops, work_of
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Losses
from bertsmith.objectives.pretraining import generator_model
from bertsmith.training.checkpoints import Checkpoint, Checkpoints, State
from bertsmith.training.config import FitConfig
from bertsmith.training.distribution import ALONE, World
from bertsmith.training.gradients import Gradient, GradientGuard
from bertsmith.training.optimisers import Optimiser
from bertsmith.training.peak import Peak
from bertsmith.training.replicas import Replica, shard_starts, sharded_like, tensors_to_save
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Pacing


class Measurement(NamedTuple):
    """A measurement: the loss by which models are chosen, and metrics by name for the log.

    Of several objectives the loss is their sum, weighed as in training. There are no metrics
    without held-out text.
    """

    loss: float
    metrics: dict[str, float]


Measure = Callable[[Model, Callable[[], bool]], Measurement | None]
"""Returns a measurement, or None if the second argument reported a request to stop."""


# of a share of the budget times a number of measurements
_ROUNDING = 1e-9


class Evaluator:
    """Measures `count` times, evenly over the budget, and tracks the best measurement.

    Training stops early after `stop_after` measurements in a row without improvement; 0 disables.
    """

    def __init__(
        self, measure: Measure | None, count: int, stop_after: int = 0, world: World = ALONE
    ) -> None:
        self._measure = measure
        self._world = world
        self._count = count if measure is not None else 0
        self._stop_after = stop_after

    def enough(self, state: State) -> bool:
        """Return whether training has to stop early."""
        return 0 < self._stop_after <= state.worse

    def due(self, state: State, spent: float) -> bool:
        """Return whether a measurement is due when a share of the budget is spent."""
        return state.measured < self._due_count(spent)

    def remaining(self, state: State) -> int:
        """Return the number of remaining measurements if training does not stop early."""
        return self._count - state.measured

    def skipped(self, state: State, spent: float) -> State:
        """Return the state without the measurement that is due."""
        return replace(state, measured=self._due_count(spent))

    def measure(
        self, model: Model, state: State, spent: float, stopping: Callable[[], bool]
    ) -> tuple[State, dict[str, float]] | None:
        """Return the state after a measurement, and a log record; None if stopped."""
        assert self._measure is not None
        measurement = self._measure(model, stopping)
        if measurement is None:
            return None
        state = replace(state, measured=self._due_count(spent))
        loss, metrics = measurement
        if not metrics:
            return state, {}
        # ranks on unlike machines measure other last bits, and have to agree on the best
        loss = self._world.broadcast_number(loss)
        best = math.inf if state.best_loss is None else state.best_loss
        # of losses that are no numbers the first counts as the best, until there is a number
        found_number = math.isnan(best) and not math.isnan(loss)
        if state.best_step is None or loss < best or found_number:
            state = replace(state, best_step=state.step, best_loss=loss, worse=0)
        else:
            state = replace(state, worse=state.worse + 1)
        line = {
            "step": state.step,
            "epoch": state.place.epoch,
            "seconds": round(state.seconds, 3),
            "tokens": state.tokens,
        }
        return state, line | {f"held_out_{name}": value for name, value in metrics.items()}

    def _due_count(self, spent: float) -> int:
        # 15 of 22 steps times 22 is a little less than 15
        return int(spent * self._count + _ROUNDING)


class Saver:
    """Writes checkpoints one at a time; what goes wrong is raised by the next call.

    Without a folder it saves nothing.
    """

    def __init__(self, folder: RunFolder | None, checkpoints: Checkpoints | None) -> None:
        self._folder = folder
        self._checkpoints = checkpoints
        self._thread = ThreadPoolExecutor(1, "saving")
        self._writing: Future[None] | None = None
        self._newest = -1
        self.seconds: float | None = None
        """Seconds to copy and write the last checkpoint, None before the first one."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Begin to write a checkpoint, unless that of its step was saved; it is copied at once.

        Waits for the one before. Raises `DiskError` of the one before.
        """
        self.wait()
        if self._checkpoints is None or checkpoint.state.step == self._newest:
            return
        self._newest = checkpoint.state.step
        started = time.monotonic()
        copy = replace(
            checkpoint,
            weights=_cpu_copies(checkpoint.weights),
            optimiser=_cpu_copies(checkpoint.optimiser),
        )
        self._writing = self._thread.submit(self._write, copy, started)

    def check(self) -> None:
        """Raise the `DiskError` of a checkpoint that could not be written."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait until everything is saved; raises `DiskError`."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def mark_saved(self, step: int) -> None:
        """Take note that the checkpoint of a step is there already."""
        self._newest = step

    def close(self) -> None:
        """End the thread when its current checkpoint is written."""
        self._thread.shutdown()

    def _write(self, checkpoint: Checkpoint, started: float) -> None:
        assert self._folder is not None
        assert self._checkpoints is not None
        self._folder.flush_log()
        self._checkpoints.save(checkpoint)
        self.seconds = time.monotonic() - started


def _cpu_copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def batch_flops(config: ModelConfig, batch: Batch) -> float:
    """Return the number of operations for training a model on a batch."""
    work = work_of(batch, window=config.encoder.window, last_needed=True)
    generators = [generator_model(config.encoder)] if config.replaced_tokens else []
    return sum(training_flops(model, work) for model in (config, *generators))


@dataclass
class MetricSums:
    """Sums over the steps since the last record of the log."""

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
        """Add one batch's losses; tensors stay on their device until the record is written."""
        for name, loss in losses.parts.items():
            self.sums[name] = self.sums.get(name, 0) + loss.sum.detach()
            if loss.predicts:
                self.correct[name] = self.correct.get(name, 0) + loss.correct
            self.counts[name] = self.counts.get(name, 0) + loss.count

    def add_work(self, config: ModelConfig, batches: Sequence[Batch]) -> None:
        """Add the tokens and operations of the batches that this process drew for a step."""
        for batch in batches:
            self.drawn += batch.tokens
            # tokens that belong to none of the sequences
            self.padding += batch.tokens - sum(batch.lengths)
            self.flops += batch_flops(config, batch)

    def add_step(self, tokens: int, seconds: float, norm: float | None) -> None:
        """Add one step; without a norm it was skipped, and only its tokens and time count."""
        self.tokens += tokens
        self.seconds += seconds
        if norm is not None:
            self.steps += 1
            self.norm += norm

    def line(self, state: State, rate: float, peak: float) -> dict[str, float]:
        """Return one record of the log: means since the last one, totals since the start.

        `peak` is the machine's, in operations per second; `mfu` the share of it that the model's
        own operations use (Chowdhery et al. 2022, appendix B).
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
            if count and name in self.correct:
                line[f"{name}_accuracy"] = float(self.correct[name]) / count
        return line

    def note(self, line: dict[str, float]) -> str:
        """Return the metrics shown next to the progress bar."""
        shown = [
            f"step {line['step']}",
            f"{short_number(line['tokens_per_second'])} tokens/s",
            f"padding {100 * line['padding']:.0f} %",
            f"MFU {100 * line['mfu']:.0f} %",
        ]
        for name in self.counts:
            if f"{name}_loss" in line:
                words = name.replace("_lm", " LM").replace("_", " ")
                accuracy = line.get(f"{name}_accuracy")
                right = "" if accuracy is None else f" ({100 * accuracy:.0f} %)"
                shown.append(f"{words} {line[f'{name}_loss']:.3f}{right}")
        if line["skipped"]:
            shown.append(f"{line['skipped']} skipped")
        return " · ".join(shown)


class TrainState:
    """Weights, optimiser, counters, and the metrics since the last record of the log."""

    def __init__(
        self,
        config: FitConfig,
        replica: Replica,
        pacing: Pacing,
        folder: RunFolder | None,
        peak: Callable[..., Peak],
    ) -> None:
        """Begin at step 0; `peak` returns the machine's, as `matrix_peak` does.

        The folder's log is written by the first rank only.
        """
        self.state = State()
        self.figures = MetricSums()
        self.saved_at = 0.0
        self.note = ""
        """The text next to the progress bar, of the last record of the log."""
        self._replica = replica
        self._model, self._trained = replica.model, replica.trained
        self._optimiser = Optimiser(replica.trained, config.optimiser)
        self._guard = GradientGuard(config.spike, config.patience)
        self._pacing = pacing
        self._config = config
        self._is_writer = replica.world.first
        self._folder = folder if self._is_writer else None
        self._peak, self._machine, self._peak_remeasured = peak(), peak, False

    @property
    def spent(self) -> float:
        """Spent share of the budget, 0 to 1."""
        return self._pacing.spent(self.state)

    def unfinished(self, evaluator: Evaluator) -> bool:
        """Return whether training has to continue."""
        if evaluator.enough(self.state):
            return False
        return self.spent < 1 or evaluator.due(self.state, self.spent)

    def step(self, gradient: Gradient, factor: float) -> None:
        """Apply a gradient unless it is rejected; raises `TrainingDiverged`."""
        if self._guard.accepts(gradient, self.state.step + 1):
            self._optimiser.step(factor)
            for losses in gradient.losses:
                self.figures.add_losses(losses)
        else:
            self._trained.zero_grad(set_to_none=True)
            self.state = replace(self.state, skipped=self.state.skipped + 1)

    def count(
        self, gradient: Gradient, position: DataPosition, batches: Sequence[Batch], started: float
    ) -> None:
        """Count a step since `started`; `position` is that of the next one in the data."""
        seconds = self._replica.world.broadcast_number(self._pacing.now() - started)
        used = not self._guard.rejected_last
        self.figures.add_work(self._model.config, batches)
        self.figures.add_step(gradient.tokens, seconds, gradient.norm if used else None)
        self.state = replace(
            self.state,
            step=self.state.step + 1,
            place=position,
            seconds=self.state.seconds + seconds,
            tokens=self.state.tokens + gradient.tokens,
        )
        self.state = self._pacing.stepped(self.state, seconds)

    def log(self, rate: float) -> None:
        """Write a record to the log, and renew the `note`."""
        reached = self.figures.flops / max(self.figures.seconds, 1e-9)
        if reached > self._peak.flops and not self._peak_remeasured:
            # the machine was busy during the measurement; measuring once more suffices
            self._peak, self._peak_remeasured = self._machine(reached=reached), True
        line = self.figures.line(self.state, rate=rate, peak=self._peak.flops)
        self.note = self.figures.note(line)
        if self._folder is not None:
            self._folder.record(line)
        self.figures = MetricSums()

    def measure(self, evaluator: Evaluator, stopping: Callable[[], bool], saver: Saver) -> None:
        """Measure on held-out text and save a new best; without effect if it was stopped.

        Measurements that would take too much of the minutes are left out.
        """
        if not self._pacing.can_measure():
            self.state = evaluator.skipped(self.state, self.spent)
            return
        started = self._pacing.now()
        with self._replica.gathered():
            outcome = evaluator.measure(self._model, self.state, self.spent, stopping)
        if outcome is None:
            return
        before, (self.state, line) = self.state, outcome
        if line and self._folder is not None:
            self._folder.record(line)
        # first, as it may end the run: resumed from a checkpoint without it, that would go on
        self.state = self._pacing.paused(self.state, self._pacing.now() - started)
        # what is due by then would be the same, as no step was made
        self.state = evaluator.skipped(self.state, self.spent)
        if self.state.best_step != before.best_step:
            self.save(saver)

    def save(self, saver: Saver) -> None:
        """Start saving a checkpoint."""
        memory = {
            "watch": self._guard.state_dict(),
            "figures": _metrics_to_json(self.figures),
            "log_bytes": 0 if self._folder is None else self._folder.log_bytes,
        }
        weights, optimiser = self._trained.state_dict(), self._optimiser.tensors()
        saver.save(
            Checkpoint(
                state=self.state,
                weights=tensors_to_save(weights, first=self._is_writer),
                optimiser=tensors_to_save(optimiser, first=self._is_writer),
                memory=memory,
                rows=shard_starts(weights) | shard_starts(optimiser),
            )
        )
        self.saved_at = self.state.seconds

    def finish(self, saver: Saver) -> None:
        """Save a checkpoint, and block until it is written and every rank has called this."""
        # how many steps some minutes have is known only now
        only_one = self._config.budget.steps is None and self.spent >= 1 and self.state.step == 1
        if only_one and self._config.schedule.factor(0.0) == 0:
            say(
                "the learning rate of the only step was 0, so nothing was learned: give more "
                "--minutes, or --warmup 0"
            )
        self.save(saver)
        saver.wait()
        self._replica.world.wait()

    def resume(self, checkpoints: Checkpoints | None, saver: Saver) -> None:
        """Resume from the newest valid checkpoint, if any; raises `RunFolderError`."""
        checkpoint = checkpoints.load() if checkpoints is not None else None
        if checkpoint is not None:
            assert checkpoints is not None
            try:
                self._trained.load_state_dict(_sharded_as(self._trained, checkpoint.weights))
            except RuntimeError as error:
                raise RunFolderError(
                    "the checkpoint's weights are not those of this model",
                    where=checkpoints.folder,
                    remedy="choose another --out",
                ) from error
            self._optimiser.restore(checkpoint.optimiser)
            self._guard.load_state_dict(checkpoint.memory["watch"])
            self.figures = _restore_metrics(checkpoint.memory["figures"])
            self.state = checkpoint.state
            self.saved_at = self.state.seconds
            saver.mark_saved(self.state.step)
            checkpoints.tidy(self.state)
        earlier, unspent = self.state, self.spent < 1
        self.state = self._pacing.begin(earlier)
        if unspent and self.spent >= 1:
            say(
                f"no minutes are left for steps: {earlier.elapsed / 60:.2f} were spent before, and "
                "starting again and what follows training take the rest; the weights stay those of "
                f"step {earlier.step}"
            )
        if not self._config.learns and self.spent < 1:
            say(
                "the learning rate of the only step is 0, so nothing is learned: give more steps "
                "or epochs, or --warmup 0"
            )
        if self._folder is not None:
            # records after the checkpoint will be written again
            self._folder.truncate_log(0 if checkpoint is None else checkpoint.memory["log_bytes"])


def _sharded_as(trained: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights, sharded where the parameters are and the shapes match."""
    likes = trained.state_dict()
    return {
        name: sharded_like(weights[name], likes[name])
        if name in likes and likes[name].shape == weights[name].shape
        else weights[name]
        for name in weights
    }


def _metrics_to_json(figures: MetricSums) -> dict[str, Any]:
    """Return the sums as JSON values, from which they can be restored exactly."""

    def plain(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, Tensor):
            return {"tensor": value.item(), "type": str(value.dtype).removeprefix("torch.")}
        return {"of": {k: plain(v) for k, v in value.items()}} if isinstance(value, dict) else value

    return {setting.name: plain(getattr(figures, setting.name)) for setting in fields(figures)}


def _restore_metrics(values: Mapping[str, Any]) -> MetricSums:
    def restore(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            return value
        if "of" in value:
            return {name: restore(item) for name, item in value["of"].items()}
        return torch.tensor(value["tensor"], dtype=getattr(torch, value["type"]))

    return MetricSums(**{name: restore(value) for name, value in values.items()})
