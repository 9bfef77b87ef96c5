"""The training loop of pre-training and fine-tuning."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass

from bertsmith.batches import DataPosition
from bertsmith.core.clock import Clock
from bertsmith.core.log import Bar, progress
from bertsmith.core.signals import Interrupted
from bertsmith.network.model import Model
from bertsmith.training.checkpoints import Checkpoints, State
from bertsmith.training.config import FitConfig
from bertsmith.training.distribution import ALONE, World
from bertsmith.training.loading import BatchSource, feeding
from bertsmith.training.local import PARTS_PER_PROCESS, LocalReplicas, local_replicas
from bertsmith.training.optimisers import Optimiser
from bertsmith.training.peak import matrix_peak
from bertsmith.training.processes import keep_large_blocks
from bertsmith.training.replicas import Objective, Replica
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Pacing, Timing
from bertsmith.training.state import Measure, Measuring, Saver, TrainState
from bertsmith.training.stepping import Watch, gradient_of


def _stay(place: DataPosition, progress: float) -> DataPosition:
    return place


def _checkpoints(folder: RunFolder | None, config: FitConfig, world: World) -> Checkpoints | None:
    if folder is None:
        return None
    return Checkpoints(folder.checkpoints, config.keep_checkpoints, world, run=folder.identity)


def _local(
    model: Model, objective: Objective, config: FitConfig
) -> AbstractContextManager[LocalReplicas | None]:
    """Return the local replicas of a run, in as many processes as there are cores for."""
    if config.replicas == 1:
        return nullcontext()
    return local_replicas(
        model,
        objective,
        config.precision,
        parts=PARTS_PER_PROCESS * config.replicas,
        processes=min(config.replicas, len(os.sched_getaffinity(0))),
    )


def _keep_up(now: TrainState, config: FitConfig, factor: float, bar: Bar, saver: Saver) -> None:
    """Advance the progress bar, and write the log and a checkpoint when they are due."""
    bar.move_to(now.spent)
    if now.state.step % config.log_every == 0 or now.spent >= 1:
        bar.note(now.log(rate=config.optimiser.learning_rate * factor))
    if now.state.seconds - now.saved_at > 60 * config.checkpoint_minutes:
        now.save(saver)


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
    objective: Objective,
    batches: BatchSource,
    *,
    enter: Callable[[DataPosition, float], DataPosition] = _stay,
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
    checkpoints = _checkpoints(folder, config, world)
    watch, own = Watch(config.spike, config.patience), world.share(config.gradient_accumulation)
    peak = functools.partial(matrix_peak, config.precision, model.device)
    replica = Replica(model, objective, config.precision, world)
    measuring = Measuring(measure, config.measurements, config.stop_after)
    with (
        world.interruptions() as stopping,
        feeding(batches, config.workers, ahead=own + 1, rank=world.rank, ranks=world.size) as feed,
        closing(Saver(folder, checkpoints)) as saver,
        _local(model, objective, config) as local,
        progress(session.title, 1.0) as bar,
    ):
        pacing = Pacing(config.budget, timing, world, measuring.left, lambda: saver.seconds)
        optimiser = Optimiser(replica.trained, config.optimiser)
        now = TrainState(replica, optimiser, watch, pacing, folder, peak)
        now.resume(checkpoints, saver)
        while now.unfinished(measuring) and not stopping():
            saver.check()
            if measuring.due(now.state, now.spent):
                bar.note("measuring on held-out text")
                now.measure(measuring, stopping, saver)
                continue
            began, seed, step = pacing.now(), config.seed, now.state.step
            drawn, place = feed.draw(enter(now.state.place, now.spent), own)
            gradient = gradient_of(
                replica, drawn, seed, step, clip=config.max_gradient_norm, stopping=stopping,
                local=local,
            )  # fmt: skip
            if gradient is None:
                break
            now.step(gradient, factor := config.schedule.factor(now.spent))
            now.count(gradient, place, drawn, world.of_first(pacing.now() - began))
            _keep_up(now, config, factor, bar, saver)
        now.finish(saver)
        stopped = stopping()
    if stopped or now.unfinished(measuring):
        # also when requested in the very last step: what follows would take long
        raise Interrupted(f"stopped after step {now.state.step}")
    model.eval()
    return now.state
