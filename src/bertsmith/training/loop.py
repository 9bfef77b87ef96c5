"""The training loop of pre-training and fine-tuning."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from bertsmith.batches import DataPosition
from bertsmith.core.clock import Clock
from bertsmith.core.log import Bar, progress
from bertsmith.core.signals import Interrupted
from bertsmith.network.model import Model
from bertsmith.training.checkpoints import Checkpoints, State
from bertsmith.training.config import FitConfig
from bertsmith.training.distribution import ALONE, World
from bertsmith.training.loading import BatchSource, open_feed
from bertsmith.training.local import processes_for
from bertsmith.training.parallelism import GradientComputer
from bertsmith.training.peak import Peak, matrix_peak
from bertsmith.training.processes import keep_large_blocks
from bertsmith.training.replicas import LossFunction, Replica
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Pacing, Timing
from bertsmith.training.state import Evaluator, Measure, Saver, TrainState


def _same_position(position: DataPosition, progress: float) -> DataPosition:
    return position


def _open_checkpoints(
    folder: RunFolder | None, config: FitConfig, world: World
) -> Checkpoints | None:
    if folder is None:
        return None
    return Checkpoints(folder.checkpoints, config.keep_checkpoints, world, run=folder.identity)


def _machine_peak(config: FitConfig, model: Model, world: World) -> Callable[..., Peak]:
    """Return a function that measures the peak of this rank's processes, as `matrix_peak`."""
    # of several ranks each computes in one process (parallelism.py)
    processes = processes_for(config.replicas) if world.size == 1 else 1
    return functools.partial(matrix_peak, config.precision, model.device, processes=processes)


def _report_progress(
    training: TrainState, config: FitConfig, factor: float, bar: Bar, saver: Saver
) -> None:
    """Advance the progress bar, and write the log and a checkpoint when they are due."""
    bar.move_to(training.spent)
    if training.state.step % config.log_every == 0 or training.spent >= 1:
        training.log(rate=config.optimiser.learning_rate * factor)
        bar.note(training.note)
    if training.state.seconds - training.saved_at > 60 * config.checkpoint_minutes:
        training.save(saver)


@dataclass(frozen=True, kw_only=True)
class Session:
    """The circumstances of a training: its title, the ranks that share it, and its clock."""

    title: str = "training"
    """Label of the progress bar."""
    world: World = ALONE
    """The ranks that share a step's batches."""
    timing: Timing | None = None
    """Clock of a budget of minutes, and costs besides steps; None for a clock that starts now."""


def fit(
    config: FitConfig,
    model: Model,
    objective: LossFunction,
    batches: BatchSource,
    *,
    enter: Callable[[DataPosition, float], DataPosition] = _same_position,
    measure: Measure | None = None,
    folder: RunFolder | None = None,
    session: Session = Session(),
) -> State:
    """Train `model` in place until the budget is spent; with a folder, resume from it.

    `enter` returns the position in the data to continue from when a share of the budget is spent;
    `measure` returns metrics on held-out text. A step whose gradient is not finite, or a spike,
    changes no weight. Raises `TrainingDiverged`, `DiskError`, `WorkerDied`, and, with everything
    saved, `Interrupted` after Ctrl-C or SIGTERM.
    """
    world, timing = session.world, session.timing or Timing(clock=Clock())
    keep_large_blocks()
    checkpoints = _open_checkpoints(folder, config, world)
    per_rank = world.share(config.gradient_accumulation)
    peak = _machine_peak(config, model, world)
    replica = Replica(model, objective, config.precision, world)
    evaluator = Evaluator(measure, config.measurements, config.stop_after, world)
    with (
        world.interruptions() as stopping,
        open_feed(batches, config.workers, world, ahead=per_rank + 1) as feed,
        closing(Saver(folder, checkpoints)) as saver,
        GradientComputer(replica, objective, config, folder) as computer,
        progress(session.title, 1.0) as bar,
    ):
        pacing = Pacing(config.budget, timing, world, evaluator.remaining, lambda: saver.seconds)
        training = TrainState(config, replica, pacing, folder, peak)
        training.resume(checkpoints, saver)
        while training.unfinished(evaluator) and not stopping():
            saver.check()
            if evaluator.due(training.state, training.spent):
                bar.note("measuring on held-out text")
                training.measure(evaluator, stopping, saver)
                bar.note(training.note)
                continue
            started = pacing.now()
            position = enter(training.state.place, training.spent)
            loaded, position = feed.next_batches(position, per_rank)
            gradient = computer.compute(loaded, training.state.step, stopping)
            if gradient is None:
                break
            training.step(gradient, factor := config.schedule.factor(training.spent))
            training.count(gradient, position, loaded, started)
            _report_progress(training, config, factor, bar, saver)
            left = pacing.seconds_left(training.state)
            computer.adapt(loaded, training.state.step, left, stopping)
        training.finish(saver)
        stopped = stopping()
    if stopped or training.unfinished(evaluator):
        # also when requested in the very last step: what follows would take long
        raise Interrupted(f"stopped after step {training.state.step}")
    model.eval()
    return training.state
