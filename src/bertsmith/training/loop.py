"""The training loop of pre-training and fine-tuning."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from bertsmith.batches import DataPosition
from bertsmith.core.clock import Clock
from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.core.log import Bar, progress
from bertsmith.core.signals import Interrupted
from bertsmith.network.model import Model, Precision
from bertsmith.training.checkpoints import Checkpoints, State
from bertsmith.training.distribution import ALONE, World
from bertsmith.training.loading import BatchSource, feeding
from bertsmith.training.optimisers import Optimiser, OptimiserConfig
from bertsmith.training.peak import matrix_peak
from bertsmith.training.replicas import Objective, Replica
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Budget, Pacing, ScheduleConfig, Timing
from bertsmith.training.state import Measure, Measuring, Saver, TrainState, saving
from bertsmith.training.stepping import Watch, gradient_of

# from glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_large_blocks() -> bool:
    """Let the C library keep large freed blocks for the next step; return whether it will.

    Otherwise each step's activations are returned to the system and faulted in again, page by page.
    The cost is memory: freed blocks of odd sizes remain (docs/experiments/fine-tuning.md). Linux
    with glibc only.
    """
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, -1))
    return False


@dataclass(frozen=True, kw_only=True)
class FitConfig(Config):
    """The settings of a training run."""

    budget: Budget
    """How long."""
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    """What changes the weights."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """How the learning rate moves."""
    clip: float = 1.0
    """Largest norm of the gradient; it is scaled down to this. 0 for no limit."""
    spike: float = 0.0
    """A step is skipped when its gradient's norm is so many times the usual one; 0 for never."""
    patience: int = 10
    """Skipped steps in a row that end the training; one is skipped too where it is no number."""
    accumulate: int = 1
    """Batches whose gradients make one step, those of all processes together."""
    precision: Precision = "bf16"
    """bf16 (autocast, float32 weights) or fp32."""
    seed: int = 0
    """Seed of dropout."""
    log_every: int = 20
    """Steps between two lines of the log."""
    checkpoint_minutes: float = 10.0
    """Minutes of training between two checkpoints; one is always made at the end."""
    keep: int = 2
    """Newest checkpoints that are kept, besides the best."""
    measurements: int = 0
    """Measurements on held-out text, evenly over the budget; minutes pay for them too."""
    stop_after: int = 0
    """Measurements in a row without a better one after which training ends; 0 for never."""
    workers: int = 0
    """Processes that draw batches ahead; 0 draws them in this one. Changes nothing but the time."""

    def __post_init__(self) -> None:
        for name in ("accumulate", "log_every", "patience", "keep"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1")
        for name in ("spike", "measurements", "stop_after", "workers"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 or more")


def _stay(place: DataPosition, progress: float) -> DataPosition:
    return place


def _checkpoints(folder: RunFolder | None, config: FitConfig, world: World) -> Checkpoints | None:
    if folder is None:
        return None
    return Checkpoints(folder.checkpoints, config.keep, world, run=folder.identity)


def _keep_up(now: TrainState, config: FitConfig, factor: float, bar: Bar, saver: Saver) -> None:
    """Advance the progress bar, and write the log and a checkpoint when they are due."""
    bar.move_to(now.spent)
    if now.state.step % config.log_every == 0 or now.spent >= 1:
        bar.note(now.log(rate=config.optimiser.rate * factor))
    if now.state.seconds - now.saved_at > 60 * config.checkpoint_minutes:
        now.save(saver)


def fit(
    config: FitConfig,
    model: Model,
    objective: Objective,
    batches: BatchSource,
    *,
    enter: Callable[[DataPosition, float], DataPosition] = _stay,
    measure: Measure | None = None,
    folder: RunFolder | None = None,
    title: str = "training",
    world: World = ALONE,
    timing: Timing | None = None,
) -> State:
    """Train `model` in place until the budget is spent; with a folder, resume from it.

    `enter` returns the position in the data to continue from when a share of the budget is spent;
    `measure` returns metrics on held-out text. A step whose gradient is not finite, or a spike,
    changes no weight. The ranks of a `world` share a step's batches. A budget of minutes runs by
    the clock of `timing`, or from now if it is None. Raises `TrainingDiverged`, `DiskError`,
    `WorkerDied`, and, with everything saved, `Interrupted` after Ctrl-C or SIGTERM.
    """
    timing = timing or Timing(clock=Clock())
    keep_large_blocks()
    checkpoints = _checkpoints(folder, config, world)
    watch, own = Watch(config.spike, config.patience), world.share(config.accumulate)
    peak = functools.partial(matrix_peak, config.precision, model.device)
    replica = Replica(model, objective, config.precision, world)
    measuring = Measuring(measure, config.measurements, config.stop_after)
    with (
        world.interruptions() as stopping,
        feeding(batches, config.workers, ahead=own + 1, rank=world.rank, ranks=world.size) as feed,
        saving(folder, checkpoints) as saver,
        progress(title, 1.0) as bar,
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
            gradient = gradient_of(replica, drawn, seed, step, clip=config.clip, stopping=stopping)
            if gradient is None:
                break
            factor = config.schedule.factor(now.spent)
            now.step(gradient, factor)
            now.count(gradient, place, drawn, world.of_first(pacing.now() - began))
            _keep_up(now, config, factor, bar, saver)
        now.finish(saver)
        stopped = stopping()
    if stopped or now.unfinished(measuring):
        # also when requested in the very last step: what follows would take long
        raise Interrupted(f"stopped after step {now.state.step}")
    model.eval()
    return now.state
