"""Our side: the recipe `quick`, on the text alone (the rival learns no next sentence either)."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bertsmith.batches import DataPosition
from bertsmith.batches.pretraining import PhasedBatches, PretrainingBatches
from bertsmith.core.clock import Clock as WallClock
from bertsmith.network.model import Model
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.recipes.pretrain.config import PretrainRun, PretrainSettings, fit_config
from bertsmith.recipes.pretrain.published import quick
from bertsmith.recipes.pretrain.recipe import start
from bertsmith.recipes.pretrain.resolving import resolve
from bertsmith.training.config import Budget
from bertsmith.training.distribution import ALONE
from bertsmith.training.gradients import compute_gradient
from bertsmith.training.loop import Session, fit
from bertsmith.training.optimisers import Optimiser
from bertsmith.training.peak import matrix_peak
from bertsmith.training.processes import keep_large_blocks
from bertsmith.training.replicas import Replica
from bertsmith.training.schedule import Timing
from bertsmith.training.state import Measurement
from bertsmith.weights.folder import save_model
from learning.clock import Clock
from learning.text import LENGTH, Novels

SIZE = "mini"
_POINTS = 10

Show = Callable[[Path, float], None]
"""Takes a saved model folder and the minutes that it took to get there."""


def settings() -> PretrainSettings:
    """`quick` as it is, but for sequences of one segment: next sentence is not compared here."""
    chosen = quick(SIZE)
    assert chosen.samples.max_length == LENGTH
    samples = replace(chosen.samples, text="across_documents")
    return replace(chosen, samples=samples, measurements=_POINTS)


def train(novels: Novels, clock: Clock, show: Show) -> tuple[float, float]:
    """Train for the clock's minutes, in which the first weights are made too.

    Ten times `show` gets the model; its time does not count. Returns the tokens a second of the
    training itself and the seconds that the first weights took.
    """
    began, paused, shown = time.perf_counter(), 0.0, 0
    run, model = _begin(novels, clock)
    matrix_peak(run.precision, model.device)  # the loop asks for it
    first = time.perf_counter() - began
    run = replace(run, budget=_budget(run, clock, first))
    samples, phases, seed = run.settings.samples, run.settings.phases, run.settings.seed
    batches = PhasedBatches(novels.learn, novels.tokenizer, samples, phases, seed)

    def measure(model: Model, stopping: Callable[[], bool]) -> Measurement:
        nonlocal paused, shown
        at = time.perf_counter()
        shown += 1
        seconds = at - began - paused
        if clock.tokens_per_second:
            seconds = first + shown / _POINTS * (60 * clock.minutes - first)
        with tempfile.TemporaryDirectory() as folder:
            save_model(Path(folder) / "model", model, novels.tokenizer)
            show(Path(folder) / "model", seconds / 60)
        paused += time.perf_counter() - at
        return Measurement(loss=math.nan, metrics={})

    # minutes without those in which the model is shown
    trained = WallClock(now=lambda: time.perf_counter() - paused)
    state = fit(
        fit_config(run), model, PRETRAINING, batches,
        enter=batches.enter, measure=measure, session=Session(timing=Timing(clock=trained)),
    )  # fmt: skip
    return state.tokens / state.seconds, first


def _begin(novels: Novels, clock: Clock) -> tuple[PretrainRun, Model]:
    budget = Budget(minutes=clock.minutes)
    run = resolve(novels.learn.folder, SIZE, budget, settings())
    return run, start(run, novels.tokenizer)


def _budget(run: PretrainRun, clock: Clock, first: float) -> Budget:
    left = 60 * clock.minutes - first
    if not clock.tokens_per_second:
        return Budget(minutes=left / 60)
    tokens = run.settings.samples.tokens_per_batch * run.settings.gradient_accumulation
    return Budget(steps=max(1, round(left * clock.tokens_per_second / tokens)))


def stepper(novels: Novels) -> Callable[[], int]:
    """A function that makes one step of training and returns its tokens, to measure speed."""
    keep_large_blocks()
    budget = Budget(minutes=2.0)
    run = resolve(novels.learn.folder, SIZE, budget, settings())
    chosen = run.settings
    # speed does not depend on what the weights start from
    plain = replace(
        run, settings=replace(chosen, network=replace(chosen.network, initialisation="random"))
    )
    model = start(plain, novels.tokenizer)
    replica = Replica(model, PRETRAINING, run.precision, ALONE)
    optimiser = Optimiser(model, chosen.optimiser)
    batches = PretrainingBatches(novels.learn, novels.tokenizer, chosen.samples, chosen.seed)
    place, steps = DataPosition(), 0

    def step() -> int:
        nonlocal place, steps
        batch, place = batches.next_batch(place)
        compute_gradient(replica, [batch], chosen.seed, steps, clip=chosen.max_gradient_norm)
        optimiser.step(0.1)
        steps += 1
        return batch.tokens

    return step
