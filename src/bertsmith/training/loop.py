"""The training loop, for pre-training and fine-tuning alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from bertsmith.batches.batch import Batch
from bertsmith.batches.pretraining import Place
from bertsmith.batches.randomness import stream
from bertsmith.config import Config
from bertsmith.errors import ConfigError, TrainingDiverged
from bertsmith.log import progress
from bertsmith.models.model import Model
from bertsmith.objectives.losses import Losses
from bertsmith.training.checkpoints import Checkpoint, State, load_checkpoint, save_checkpoint
from bertsmith.training.figures import Figures
from bertsmith.training.interruption import Interrupted, interruptions
from bertsmith.training.optimiser import Optimiser, OptimiserConfig
from bertsmith.training.precision import Precision, autocast, keep_large_blocks
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Budget, ScheduleConfig


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

    def __post_init__(self) -> None:
        if self.accumulate < 1 or self.log_every < 1:
            raise ConfigError("accumulate and log_every must be at least 1")


class BatchSource(Protocol):
    """Where batches come from: a pure function of the place in the data."""

    def take(self, place: Place) -> tuple[Batch, Place]:
        """The batch that begins at a place, and the place after it."""
        ...


Objective = Callable[[Model, Batch], Losses]


def _stay(place: Place, progress: float) -> Place:
    return place


def fit(
    config: FitConfig,
    model: Model,
    objective: Objective,
    batches: BatchSource,
    *,
    enter: Callable[[Place, float], Place] = _stay,
    folder: RunFolder | None = None,
    title: str = "training",
) -> State:
    """Train `model` in place until the budget is spent; with a folder, resume what it holds.

    `enter` tells where in the data to go on when a share of the budget is spent.

    Raises `TrainingDiverged` before any weight changes when the loss or the gradient is no number,
    and `Interrupted`, everything saved, after Ctrl-C.
    """
    keep_large_blocks()
    optimiser = Optimiser(model, config.optimiser)
    state = _resume(model, optimiser, folder)
    figures = Figures()
    saved_at = state.seconds
    spent = config.budget.progress
    model.train()
    with interruptions() as requests, progress(title, 1.0) as bar:
        while spent(state.step, state.seconds) < 1 and not requests.stop:
            began = time.perf_counter()
            place = enter(state.place, spent(state.step, state.seconds))
            drawn, place = _draw(batches, place, config.accumulate)
            torch.manual_seed(int(stream(config.seed, state.step)) >> 1)
            norm = _gradients(config, model, objective, drawn, state.step, figures)
            factor = config.schedule.factor(spent(state.step, state.seconds))
            optimiser.step(factor)
            seconds = time.perf_counter() - began
            tokens = sum(batch.tokens for batch in drawn)
            state = State(
                step=state.step + 1,
                place=place,
                seconds=state.seconds + seconds,
                tokens=state.tokens + tokens,
            )
            figures.add_step(tokens, seconds, norm)
            bar.move_to(spent(state.step, state.seconds))
            if state.step % config.log_every == 0 or spent(state.step, state.seconds) >= 1:
                line = figures.line(state, rate=config.optimiser.rate * factor)
                bar.note(figures.note(line))
                if folder is not None:
                    folder.record(line)
                figures = Figures()
            if state.seconds - saved_at > 60 * config.checkpoint_minutes:
                _save(model, optimiser, folder, state)
                saved_at = state.seconds
    _save(model, optimiser, folder, state)
    if requests.stop and spent(state.step, state.seconds) < 1:
        raise Interrupted(f"stopped after step {state.step}")
    model.eval()
    return state


def _draw(batches: BatchSource, place: Place, count: int) -> tuple[list[Batch], Place]:
    drawn = []
    for _ in range(count):
        batch, place = batches.take(place)
        drawn.append(batch)
    return drawn, place


def _gradients(
    config: FitConfig,
    model: Model,
    objective: Objective,
    drawn: list[Batch],
    step: int,
    figures: Figures,
) -> float:
    """Leave the gradient of the mean loss over all batches in the model; return its norm."""
    counts = _target_counts(drawn)
    for each in drawn:
        batch = each.to(model.device)
        with autocast(config.precision, model.device):
            losses = objective(model, batch)
        total = losses.total(counts)
        if not total.isfinite():
            raise TrainingDiverged(
                f"the loss is {total.item()} at step {step + 1}; no weight was changed",
                remedy="lower the learning rate or lengthen the warm-up",
            )
        total.backward()
        figures.add_losses(losses)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip or float("inf"))
    if not norm.isfinite():
        raise TrainingDiverged(
            f"the gradient is {norm.item()} at step {step + 1}; no weight was changed",
            remedy="lower the learning rate or lengthen the warm-up",
        )
    return norm.item()


def _target_counts(batches: list[Batch]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for batch in batches:
        for name, target in batch.targets.items():
            counts[name] = counts.get(name, 0) + len(target)
    return counts


def _resume(model: Model, optimiser: Optimiser, folder: RunFolder | None) -> State:
    checkpoint = load_checkpoint(folder.checkpoints) if folder is not None else None
    if checkpoint is None:
        return State()
    model.load_state_dict(checkpoint.weights)
    optimiser.restore(checkpoint.optimiser)
    return checkpoint.state


def _save(model: Model, optimiser: Optimiser, folder: RunFolder | None, state: State) -> None:
    if folder is not None:
        checkpoint = Checkpoint(
            state=replace(state), weights=model.state_dict(), optimiser=optimiser.tensors()
        )
        save_checkpoint(folder.checkpoints, checkpoint)
