"""Pre-flight check of the speed, and of how much of the corpus the budget covers.

Some real steps are taken with a copy of the model, at every sequence length of the run, as the
speeds differ.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean, median

import numpy as np
import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.errors import WorkerDied
from bertsmith.core.log import progress, short_number
from bertsmith.core.printable import counted
from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.model import Model
from bertsmith.network.torch_state import threads_of_torch
from bertsmith.recipes.resources import WORKING_ROOM, Finding, free_memory, limit_finding
from bertsmith.store.store import TokenStore
from bertsmith.training.config import Budget, OptimiserConfig, Parallelism
from bertsmith.training.local import (
    PARTS_PER_PROCESS,
    POSSIBLE,
    DropoutKey,
    local_replicas,
    shared_bytes,
)
from bertsmith.training.optimisers import Optimiser
from bertsmith.training.peak import Peak, matrix_peak
from bertsmith.training.processes import keep_large_blocks
from bertsmith.training.replicas import LossFunction, TrainedParameters, autocast, own_modules
from bertsmith.training.state import batch_flops
from bertsmith.training.threads import ThreadChoice, choose_threads

TRIAL_STEPS, REPLICA_STEPS = 5, 3
MAX_SECONDS = 5.0
"""Seconds for all steps of one length; of slow steps fewer are timed, or part of a batch."""
# of a batch parts are timed, each larger than the one before, for up to so many times the seconds
_PARTS = 3
_MIN_STEPS, _FEW_STEPS = 20.0, 100.0
# share of the minutes that should be left for steps
_MIN_STEPS_SHARE = 0.5
_MAX_REPETITIONS = 40.0
# all threads as fast as so much of as many alone leave little to gain by replicas
_WELL_SHARED = 0.9
# starting replicas takes some seconds
_MIN_SECONDS = 120.0
# of n replicas, measured: the update is made by one (docs/experiments/threads-and-busy-machines.md)
_REPLICA_GAIN = 0.9


@dataclass(frozen=True, kw_only=True)
class PhaseTiming:
    """The cost of a few real steps at one length, without evaluation and saving."""

    longest: int
    """Length of the longest sequence in tokens."""
    share: float
    """Share of the budget spent at this length."""
    tokens: float
    """Tokens per batch."""
    batch_seconds: float
    """Seconds of the forward and backward pass of a batch, including its preparation."""
    update_seconds: float
    """Seconds of the optimiser step."""
    flops: float
    """Floating-point operations per batch."""
    first_loss: float
    """Loss of the first objective on the first batch."""
    timed: float = 1.0
    """Share of a batch that was timed; below 1 the seconds are more than those of a whole one."""

    @property
    def note(self) -> str:
        """A note on seconds that are those of a part of a batch, "" for a whole one."""
        if self.timed == 1:
            return ""
        return (
            f"; timed on {100 * self.timed:.0f} % of a batch, as steps are long or the machine is "
            "busy: whole batches may be several times as fast"
        )


@dataclass(frozen=True, kw_only=True)
class StepCosts:
    """Trials at every length, with the number of batches in a step."""

    trials: tuple[PhaseTiming, ...]
    peak: Peak
    """Speed of the fastest matrix product on this machine."""
    accumulate: int = 1
    """Batches of a process in one step."""
    processes: int = 1
    """Processes that share a step, each with separate batches."""
    replicas: int = 1
    """Processes of this machine that share each batch."""

    def seconds_a_step(self, trial: PhaseTiming) -> float:
        """Return the seconds of one optimiser step at one length."""
        replicas = _REPLICA_GAIN * self.replicas if self.replicas > 1 else 1
        return self.accumulate * trial.batch_seconds / replicas + trial.update_seconds

    def tokens_a_step(self, trial: PhaseTiming) -> float:
        """Return the tokens of all processes in a step."""
        return self.processes * self.accumulate * trial.tokens

    def utilisation(self, trial: PhaseTiming) -> float:
        """Return the share of the peak performance that the model's operations reach (MFU)."""
        return self.accumulate * trial.flops / self.seconds_a_step(trial) / self.peak.flops

    def outcome(self, budget: Budget, reserved_seconds: float = 0.0) -> tuple[float, float, float]:
        """Return the steps, their seconds and tokens in a budget.

        Of a budget of minutes, `reserved_seconds` seconds are reserved for other things.
        """
        steps = seconds = tokens = 0.0
        for trial in self.trials:
            step_seconds = self.seconds_a_step(trial)
            if budget.steps is not None:
                part = trial.share * budget.steps
            else:
                assert budget.minutes is not None
                part = trial.share * max(0.0, 60 * budget.minutes - reserved_seconds) / step_seconds
            steps += part
            seconds += part * step_seconds
            tokens += part * self.tokens_a_step(trial)
        return steps, seconds, tokens


def measure(
    copy: TrainedCopy,
    phases: Sequence[tuple[float, PretrainingBatches]],
    *,
    seconds: float = MAX_SECONDS,
) -> StepCosts:
    """Take a few steps on every phase, (share of the budget, batches).

    They are taken by this process alone, with a batch each; those of a phase take about `seconds`,
    and more where a whole batch would not be timed otherwise.
    """
    peak = matrix_peak(copy.precision, copy.model.device)
    trials = []
    with progress("measuring the speed", len(phases)) as bar:
        for share, batches in phases:
            trials.append(_time_phase(copy, share, batches, seconds))
            bar.advance()
    return StepCosts(trials=tuple(trials), peak=peak)


def measure_threads(
    copy: TrainedCopy,
    batches: PretrainingBatches,
    *,
    max_threads: int,
    seconds: float,
    budget: Budget,
) -> ThreadChoice:
    """Choose the number of threads by a few steps with each, of about `seconds` in all.

    Torch is left with `max_threads`. A model so large that a step with two sequences takes all of
    the time keeps them: its products are long, so that little of the time is spent waiting for
    threads. Local replicas are the alternative of a longer run, and are tried at once where all
    threads together are much slower than as many alone would be.
    """
    full, _ = batches.next_batch(DataPosition())
    small = batches.samples(np.arange(min(2, full.sequences)), 0)

    def timed(threads: int, batch: Batch, steps: int) -> tuple[float, float]:
        with threads_of_torch(threads):
            return copy.timed(small, [batch] * (steps + 1), seconds)

    with progress("measuring the speed with fewer threads", None):
        # with one, as several may be slower by any factor
        rate, update = timed(1, small, 2)
        if rate * small.tokens + update > seconds:
            return ThreadChoice(threads=max_threads)
        sequences = int(seconds / (TRIAL_STEPS + 2) / (rate * full.tokens) * full.sequences)
        batch = batches.samples(np.arange(min(max(sequences, small.sequences), full.sequences)), 0)
        timed(1, batch, 1)
        speeds: dict[int, float] = {}

        def speed_of(threads: int) -> float:
            rate, update = timed(threads, batch, TRIAL_STEPS)
            speeds[threads] = full.tokens / (rate * full.tokens + update)
            return speeds[threads]

        choice = choose_threads(speed_of, max_threads)
        duration = 60 * (budget.minutes or 0) + (budget.steps or 0) * full.tokens / speeds[1]
        if full.given or duration < _MIN_SECONDS or full.sequences < max_threads:
            return choice
        if not _replicas_fit(copy, max_threads):
            return choice
        choice = replace(choice, alternative=Parallelism(threads=1, replicas=max_threads))
        if speeds[max_threads] > _WELL_SHARED * max_threads * speeds[1]:
            return choice
        with threads_of_torch(1), suppress(WorkerDied):
            step_seconds = _seconds_of_replicas(copy, full, max_threads) + update
            return _replicas_unless_slower(
                choice, speeds[choice.threads], max_threads, full.tokens / step_seconds
            )
        return choice


def _replicas_fit(copy: TrainedCopy, processes: int) -> bool:
    """Return whether replicas of a model would leave half of the memory free."""
    if not POSSIBLE:
        return False
    free = free_memory(copy.model.device)
    memory_needed = shared_bytes(copy.model, processes) + (processes - 1) * WORKING_ROOM
    return free is None or memory_needed <= free / 2


def _replicas_unless_slower(
    choice: ThreadChoice, speed: float, replicas: int, shared: float
) -> ThreadChoice:
    """Return the replicas, of `shared` tokens a second, unless threads are faster, at `speed`."""
    if shared < speed:
        return choice
    return ThreadChoice(
        threads=1,
        replicas=replicas,
        alternative=Parallelism(threads=replicas),
        reason=f"{replicas} replicas of one thread: {shared:,.0f} tokens/s against {speed:,.0f} of "
        f"{counted(choice.threads, 'thread')} in one process",
    )


def _seconds_of_replicas(copy: TrainedCopy, batch: Batch, processes: int) -> float:
    """Return the median seconds of a batch's gradient by a number of local replicas."""
    counts = {name: len(target) for name, target in batch.targets.items()}
    parts, seconds = PARTS_PER_PROCESS * processes, list[float]()
    with local_replicas(
        copy.model, copy.objective, copy.precision, parts=parts, processes=processes
    ) as local:
        # the first is slower: memory is new, and products are compiled
        for _ in range(1 + REPLICA_STEPS):
            started = time.perf_counter()
            local.add_gradient(batch, counts, DropoutKey(0, 0, 0))
            seconds.append(time.perf_counter() - started)
            copy.model.zero_grad(set_to_none=True)
    return median(seconds[1:])


class TrainedCopy:
    """A copy of a model, with what trains it: steps can be tried, and the model is unchanged."""

    def __init__(
        self,
        model: Model,
        objective: LossFunction,
        optimiser: OptimiserConfig,
        precision: Precision,
    ) -> None:
        keep_large_blocks()
        self.model = copy.deepcopy(model).train()
        self.objective, self.precision = copy.deepcopy(objective), precision
        trained = TrainedParameters(self.model, own_modules(self.objective))
        self._optimiser = Optimiser(trained, optimiser)

    def step(self, batch: Batch) -> tuple[float, float, float]:
        """Return seconds per token of the gradient, seconds of the update, the first loss."""
        device = self.model.device
        started = time.perf_counter()
        with autocast(self.precision, device):
            losses = self.objective(self.model, batch.to(device))
        losses.total().backward()
        _synchronise(device)
        updating = time.perf_counter()
        self._optimiser.step(0.0)
        _synchronise(device)
        first = next(iter(losses.parts.values()))
        loss = first.sum.item() / max(first.count, 1)
        return (updating - started) / batch.tokens, time.perf_counter() - updating, loss

    def timed(
        self, small_batch: Batch, batches: Iterable[Batch], limit: float
    ) -> tuple[float, float]:
        """Return the median seconds per token and per update of batches within a limit of seconds.

        Steps with `small_batch` and the first batch come before, as products are compiled for
        each shape and number of threads; they count only if they take all of the time.
        """
        started, results = time.perf_counter(), [self.step(small_batch)]
        for batch in batches:
            if time.perf_counter() - started >= limit:
                break
            results.append(self.step(batch))
        rates, updates, _ = zip(*(results[2:] or results[-1:]), strict=True)
        return median(rates), median(updates)


def _time_phase(
    copy: TrainedCopy, share: float, batches: PretrainingBatches, limit: float
) -> PhaseTiming:
    started = time.perf_counter()
    batches_read = _first_step_batches(batches)
    drawing = (time.perf_counter() - started) / len(batches_read)
    tokens = fmean(batch.tokens for batch in batches_read)
    flops = fmean(batch_flops(copy.model.config, batch) for batch in batches_read)
    full = batches_read[0].sequences
    sequences = min(2, full)
    # the first execution includes warm-up, which may take many times as long as the limit
    copy.step(batches.samples(np.arange(sequences), 0))
    start = time.perf_counter()
    timed = [copy.step(batches.samples(np.arange(sequences), 0))]
    # a small part says little of the whole, as some costs do not grow with it
    seconds = growth = time.perf_counter() - start
    while sequences < full and time.perf_counter() - start + seconds + growth <= _PARTS * limit:
        sequences, begun = min(4 * sequences, full), time.perf_counter()
        timed = [copy.step(batches.samples(np.arange(sequences), 0))]
        seconds, before = time.perf_counter() - begun, seconds
        growth = 4 * max(seconds - before, 0.0)
    part = batches.samples(np.arange(sequences), 0)
    for batch in batches_read if sequences == full else [part] * TRIAL_STEPS:
        if time.perf_counter() - start > limit:
            break
        timed.append(copy.step(batch))
    # memory of a new size makes the first slower, another program any one of them
    rates, updates, _ = zip(*(timed[1:] or timed), strict=True)
    return PhaseTiming(
        longest=batches.config.max_length,
        share=share,
        tokens=tokens,
        batch_seconds=drawing + tokens * median(rates),
        update_seconds=median(updates),
        flops=flops,
        first_loss=timed[0][2],
        timed=sequences / full,
    )


def _first_step_batches(batches: PretrainingBatches) -> list[Batch]:
    """Return the first batches of the run."""
    first, position = [], DataPosition()
    for _ in range(TRIAL_STEPS):
        batch, position = batches.next_batch(position)
        first.append(batch)
    return first


def check_speed(costs: StepCosts) -> list[Finding]:
    """Return findings on tokens per second and utilisation, at every length."""
    findings = []
    for trial in costs.trials:
        seconds = costs.seconds_a_step(trial)
        findings.append(
            Finding(
                name="speed" + (f" at {trial.longest}" if len(costs.trials) > 1 else ""),
                found=f"{short_number(costs.tokens_a_step(trial) / seconds)} tokens/s, "
                f"{1000 * seconds:,.0f} ms a step, MFU {100 * costs.utilisation(trial):.0f} % of "
                f"{costs.peak}{trial.note}",
            )
        )
    return findings


def check_time(costs: StepCosts, budget: Budget, reserved_seconds: float) -> list[Finding]:
    """Return findings on the share of a budget of minutes left for steps; none for one of steps."""
    if budget.minutes is None:
        return []
    total = 60 * budget.minutes
    seconds_left = max(0.0, total - reserved_seconds)
    longest = max(costs.seconds_a_step(trial) for trial in costs.trials)
    minutes_needed = max(2 * reserved_seconds, reserved_seconds + _FEW_STEPS * longest) / 60
    return [
        limit_finding(
            "training time",
            f"{seconds_left:.0f} of {total:.0f} s are left for steps; checks, measurements, "
            "evaluation and saving take the rest"
            + ("" if seconds_left > longest else ": one step is made in any case"),
            -seconds_left / total,
            (-_MIN_STEPS_SHARE, math.inf if budget.minutes < 1 else -1e-9),
            f"give --minutes {_rounded_up(minutes_needed):g} or more",
        )
    ]


def check_budget(
    store: TokenStore,
    costs: StepCosts,
    budget: Budget,
    parameters: int,
    reserved_seconds: float = 0.0,
) -> list[Finding]:
    """Return findings on how much of the corpus the budget covers, and whether it is worthwhile.

    Of a budget of minutes, `reserved_seconds` seconds are reserved for other things than steps.
    """
    steps, seconds, tokens = costs.outcome(budget, reserved_seconds)
    times, per_parameter = tokens / store.tokens, tokens / max(parameters, 1)
    share = _MAX_REPETITIONS / max(times, 1e-9)
    if budget.minutes is None:
        enough, more = counted(max(1, int(steps * share)), "step"), "steps"
    else:
        enough, more = f"{two_digits((seconds * share + reserved_seconds) / 60)} minutes", "time"
    # published recipes have steps of hundreds of batches
    part = "--tokens-per-batch" if costs.accumulate == 1 else "--gradient-accumulation"
    # users who give minutes may not know how few steps fit; few steps or seconds are a trial
    is_trial = budget.minutes is None or budget.minutes < 1
    return [
        limit_finding(
            "budget",
            f"{short_number(tokens)} tokens in {steps:,.0f} steps, {seconds / 60:.1f} minutes: "
            f"the corpus {two_digits(times)} times",
            times,
            (_MAX_REPETITIONS, 10 * _MAX_REPETITIONS),
            f"use more text, or {enough}: after {_MAX_REPETITIONS:.0f} passes, the "
            "same text teaches little",
        ),
        limit_finding(
            "steps",
            f"{steps:,.0f}, {two_digits(per_parameter)} tokens for each of "
            f"{short_number(parameters)} parameters",
            -steps,
            (-_FEW_STEPS, math.inf if is_trial else -_MIN_STEPS),
            f"give more {more}, or a smaller --model, or smaller {part}",
        ),
    ]


def _rounded_up(minutes: float) -> float:
    """Return minutes rounded up, to a tenth where they are few."""
    return math.ceil(minutes) if minutes >= 10 else math.ceil(10 * minutes) / 10


def two_digits(number: float) -> str:
    """Return a number with two digits, or more where it is above 99: never as 1.5e+02."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
