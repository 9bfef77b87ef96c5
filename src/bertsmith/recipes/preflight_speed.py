"""Before training: how fast is it here, and what will the budget see of the corpus?

Some real steps are taken with a copy of the model, at every length of sequence that the run will
have, for the speeds differ.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bertsmith.batches.batch import Batch
from bertsmith.batches.pretraining import Place, PretrainingBatches
from bertsmith.batches.store import TokenStore
from bertsmith.log import short_number
from bertsmith.models.model import Model
from bertsmith.objectives.losses import Losses
from bertsmith.recipes.findings import Finding, judged
from bertsmith.training.figures import batch_flops
from bertsmith.training.optimiser import Optimiser, OptimiserConfig
from bertsmith.training.peak import Peak, matrix_peak
from bertsmith.training.precision import Precision, autocast, keep_large_blocks
from bertsmith.training.schedule import Budget

TRIAL_STEPS, _UNTIMED = 5, 1
# for all steps of one length; where they would take longer one is timed, or as much of a batch
_MOST_SECONDS = 5.0
_USUAL_UTILISATION = 0.3
_FEWEST_STEPS, _FEW_STEPS = 20.0, 100.0
_MOST_TIMES = 40.0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a few real steps at one length took, without evaluation and saving."""

    longest: int
    """Tokens of the longest sequence."""
    share: float
    """Share of the budget that is spent at this length."""
    tokens: float
    """Tokens a batch."""
    batch_seconds: float
    """Forward and backward pass of a batch, its making included."""
    update_seconds: float
    """The optimiser's step."""
    flops: float
    """Floating-point operations a batch."""
    first_loss: float
    """Loss of the first batch, of the objective named first."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Trials at every length, with the number of batches that make a step."""

    trials: tuple[Trial, ...]
    accumulate: int
    """Batches a process makes of a step."""
    processes: int
    """Processes that share a step, each with batches of its own."""
    peak: Peak
    """The fastest matrix product here."""

    def seconds_a_step(self, trial: Trial) -> float:
        """Seconds of one optimiser step at one length."""
        return self.accumulate * trial.batch_seconds + trial.update_seconds

    def tokens_a_step(self, trial: Trial) -> float:
        """Tokens that all processes see in a step."""
        return self.processes * self.accumulate * trial.tokens

    def utilisation(self, trial: Trial) -> float:
        """Share of the machine's peak that the model's own operations take (MFU)."""
        return self.accumulate * trial.flops / self.seconds_a_step(trial) / self.peak.flops

    def outcome(self, budget: Budget) -> tuple[float, float, float]:
        """Steps, seconds and tokens that a budget comes to."""
        steps = seconds = tokens = 0.0
        for trial in self.trials:
            each = self.seconds_a_step(trial)
            if budget.steps is not None:
                part = trial.share * budget.steps
            else:
                assert budget.minutes is not None
                part = trial.share * 60 * budget.minutes / each
            steps += part
            seconds += part * each
            tokens += part * self.tokens_a_step(trial)
        return steps, seconds, tokens


def measure(
    model: Model,
    phases: Sequence[tuple[float, PretrainingBatches]],
    objective: Callable[[Model, Batch], Losses],
    optimiser: OptimiserConfig,
    precision: Precision,
    *,
    accumulate: int = 1,
    processes: int = 1,
) -> Pace:
    """Take a few steps with a copy of the model on every phase, (share of the budget, batches)."""
    keep_large_blocks()
    peak = matrix_peak(precision, model.device)
    trial = copy.deepcopy(model).train()
    stepper = Optimiser(trial, optimiser)
    trials = [
        _measured(trial, stepper, share, batches, objective, precision, peak.flops)
        for share, batches in phases
    ]
    return Pace(trials=tuple(trials), accumulate=accumulate, processes=processes, peak=peak)


def _measured(
    model: Model,
    stepper: Optimiser,
    share: float,
    batches: PretrainingBatches,
    objective: Callable[[Model, Batch], Losses],
    precision: Precision,
    peak: float,
) -> Trial:
    began = time.perf_counter()
    drawn = _some(batches)
    drawing = (time.perf_counter() - began) / len(drawn)
    tokens = _mean([batch.tokens for batch in drawn])
    flops = _mean([batch_flops(model.config, batch) for batch in drawn])
    affordable = _MOST_SECONDS * _USUAL_UTILISATION * peak / flops
    if affordable < TRIAL_STEPS:
        some = max(2, int(min(affordable, 1) * drawn[0].sequences))
        drawn = [batches.samples(np.arange(count), 0) for count in (2, some)]
    timed: list[tuple[float, float, float]] = []
    start = time.perf_counter()
    for number, batch in enumerate(drawn):
        if number > _UNTIMED and time.perf_counter() - start > _MOST_SECONDS:
            break
        timed.append(_timed(model, stepper, batch, objective, precision))
    rates, updates, losses = zip(*timed, strict=True)
    return Trial(
        longest=batches.config.longest,
        share=share,
        tokens=tokens,
        batch_seconds=drawing + tokens * _mean(rates[_UNTIMED:]),
        update_seconds=_mean(updates[_UNTIMED:]),
        flops=flops,
        first_loss=losses[0],
    )


def _some(batches: PretrainingBatches) -> list[Batch]:
    """The first batches of the run."""
    drawn, place = [], Place()
    for _ in range(TRIAL_STEPS):
        batch, place = batches.take(place)
        drawn.append(batch)
    return drawn


def _timed(
    model: Model,
    stepper: Optimiser,
    batch: Batch,
    objective: Callable[[Model, Batch], Losses],
    precision: Precision,
) -> tuple[float, float, float]:
    """Seconds a token of the gradient, seconds of the update, the loss of the first objective."""
    began = time.perf_counter()
    with autocast(precision, model.device):
        losses = objective(model, batch.to(model.device))
    losses.total().backward()
    _finish(model.device)
    between = time.perf_counter()
    stepper.step(0.0)
    _finish(model.device)
    first = next(iter(losses.parts.values()))
    loss = first.sum.item() / max(first.count, 1)
    return (between - began) / batch.tokens, time.perf_counter() - between, loss


def look_at_speed(pace: Pace) -> list[Finding]:
    """Tokens a second and utilisation, at every length."""
    findings = []
    for trial in pace.trials:
        seconds = pace.seconds_a_step(trial)
        findings.append(
            Finding(
                name="speed" + (f" at {trial.longest}" if len(pace.trials) > 1 else ""),
                found=f"{short_number(pace.tokens_a_step(trial) / seconds)} tokens/s, "
                f"{1000 * seconds:,.0f} ms a step, MFU {100 * pace.utilisation(trial):.0f} % of "
                f"{pace.peak}",
            )
        )
    return findings


def look_at_budget(store: TokenStore, pace: Pace, budget: Budget, parameters: int) -> list[Finding]:
    """What the budget sees of the corpus, and whether that is worth its time."""
    steps, seconds, tokens = pace.outcome(budget)
    times, each = tokens / store.tokens, tokens / max(parameters, 1)
    enough = seconds / 60 * _MOST_TIMES / max(times, 1e-9)
    # minutes are given without knowing how few steps they come to; steps, or seconds, to try it
    tried = budget.minutes is None or budget.minutes < 1
    return [
        judged(
            "the budget sees",
            f"{short_number(tokens)} tokens in {steps:,.0f} steps, {seconds / 60:.1f} minutes: "
            f"the corpus {_times(times)} times",
            times,
            (_MOST_TIMES, 10 * _MOST_TIMES),
            f"more text, or {enough:.2g} minutes: beyond {_MOST_TIMES:.0f} times over, little is "
            "learned from the same",
        ),
        judged(
            "steps",
            f"{steps:,.0f}, {_times(each)} tokens for each of {short_number(parameters)} "
            "parameters",
            -steps,
            (-_FEW_STEPS, math.inf if tried else -_FEWEST_STEPS),
            "give more time, or a smaller --model, or smaller --samples.tokens_per_batch",
        ),
    ]


def _times(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)
