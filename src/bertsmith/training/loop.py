"""The training loop, for pre-training and fine-tuning alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from bertsmith.batches.pretraining import Place
from bertsmith.batches.randomness import stream
from bertsmith.config import Config
from bertsmith.errors import ConfigError
from bertsmith.log import progress
from bertsmith.models.model import Model
from bertsmith.training.checkpoints import Checkpoints, State
from bertsmith.training.feeding import BatchSource, feeding
from bertsmith.training.interruption import Interrupted, interruptions
from bertsmith.training.measuring import Measure, Measuring
from bertsmith.training.optimiser import Optimiser, OptimiserConfig
from bertsmith.training.peak import matrix_peak
from bertsmith.training.precision import Precision, keep_large_blocks
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.saving import saving
from bertsmith.training.schedule import Budget, ScheduleConfig
from bertsmith.training.standing import Standing
from bertsmith.training.stepping import Objective, Watch, gradient_of


@dataclass(frozen=True, kw_only=True)
class FitConfig(Config):
    """How a model is trained."""

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
    """Batches whose gradients make one step."""
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
    """Measurements on held-out text, evenly over the budget, in time that does not count."""
    workers: int = 0
    """Processes that draw batches ahead; 0 draws them in this one. Changes nothing but the time."""

    def __post_init__(self) -> None:
        for name in ("accumulate", "log_every", "patience", "keep"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1")
        for name in ("spike", "measurements", "workers"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 or more")


def _stay(place: Place, progress: float) -> Place:
    return place


def fit(
    config: FitConfig,
    model: Model,
    objective: Objective,
    batches: BatchSource,
    *,
    enter: Callable[[Place, float], Place] = _stay,
    measure: Measure | None = None,
    folder: RunFolder | None = None,
    title: str = "training",
) -> State:
    """Train `model` in place until the budget is spent; with a folder, resume what it holds.

    `enter` tells where in the data to go on when a share of the budget is spent; `measure` gives
    figures on held-out text. A step whose gradient is no number, or a spike, changes no weight.
    Raises `TrainingDiverged` when such steps do not end, `DiskError` when a checkpoint cannot be
    written, `WorkerDied`, and `Interrupted`, everything saved, after Ctrl-C or SIGTERM.
    """
    keep_large_blocks()
    checkpoints = None if folder is None else Checkpoints(folder.checkpoints, keep=config.keep)
    watch, peak = Watch(config.spike, config.patience), matrix_peak(config.precision, model.device)
    now = Standing(model, Optimiser(model, config.optimiser), watch, config.budget, folder, peak)
    measuring = Measuring(measure, config.measurements)
    with (
        interruptions() as requests,
        feeding(batches, config.workers, ahead=config.accumulate + 1) as feed,
        saving(folder, checkpoints) as saver,
        progress(title, 1.0) as bar,
    ):
        now.resume(checkpoints, saver)
        model.train()
        while not requests.stop and now.unfinished(measuring):
            saver.check()
            if measuring.due(now.state, now.spent):
                now.measure(measuring, requests.asked, saver)
                continue
            began = time.perf_counter()
            drawn, place = feed.draw(enter(now.state.place, now.spent), config.accumulate)
            torch.manual_seed(int(stream(config.seed, now.state.step)) >> 1)
            gradient = gradient_of(
                model, objective, drawn,
                precision=config.precision, clip=config.clip, stopping=requests.asked,
            )  # fmt: skip
            if gradient is None:
                break
            factor = config.schedule.factor(now.spent)
            now.step(gradient, factor)
            now.count(gradient, place, drawn, time.perf_counter() - began)
            bar.move_to(now.spent)
            if now.state.step % config.log_every == 0 or now.spent >= 1:
                bar.note(now.log(rate=config.optimiser.rate * factor))
            if now.state.seconds - now.saved_at > 60 * config.checkpoint_minutes:
                now.save(saver)
        now.save(saver)
        saver.wait()
    if requests.stop and now.unfinished(measuring):
        raise Interrupted(f"stopped after step {now.state.step}")
    model.eval()
    return now.state
