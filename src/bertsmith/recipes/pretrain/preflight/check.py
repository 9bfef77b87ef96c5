"""The pre-flight check: is this run worth its time?

First whether it fits into memory and onto the disk, before anything is allocated; then the
properties of the corpus, the speed of a few real steps, and how much of the corpus the budget
covers. A finding that would waste the run stops it, with the remedy; `--force` overrides that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from bertsmith.batches.config import Phase
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.log import progress
from bertsmith.network.batch import Batch
from bertsmith.network.model import Model, ModelConfig
from bertsmith.objectives.objective import Losses
from bertsmith.recipes.findings import Finding, Findings, judged, worst
from bertsmith.recipes.pretrain.config import PretrainRun
from bertsmith.recipes.pretrain.preflight.corpus import MOST_TOKENS as COVERED_TOKENS
from bertsmith.recipes.pretrain.preflight.corpus import (
    coverage,
    look_at_sequences,
    look_at_text,
    look_at_vocabulary,
)
from bertsmith.recipes.pretrain.preflight.speed import (
    MOST_SECONDS,
    TRIAL_STEPS,
    Pace,
    look_at_budget,
    look_at_speed,
    look_at_time,
    measure,
)
from bertsmith.recipes.room import look_at_room, need
from bertsmith.store.store import TokenStore
from bertsmith.store.survey import MOST_TOKENS, survey
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import Budget
from bertsmith.weights.formats.catalog import FORMATS, cannot_hold, format_of

# per minute of a budget: tokens surveyed and tokens of sampled sequences, a second each on a busy
# core; and the share of the budget for timing steps
_SURVEYED, _COVERED, _SPEED_SHARE = 4_000_000, 200_000, 0.03
_LEAST_SEEN = 50_000

__all__ = ["TRIAL_STEPS", "Finding", "Findings", "check", "check_room"]


def check_room(
    run: PretrainRun,
    config: ModelConfig,
    phases: Sequence[PretrainingBatches],
    folder: Path,
    device: torch.device,
    *,
    force: bool = False,
    processes: int = 1,
) -> Findings:
    """Check whether a model of this config can be trained here, before any of it is allocated.

    Raises `StoreError` if it cannot, unless `force` is given.
    """
    settings = run.settings
    wanted = [
        need(config, batches.config, settings.optimiser, settings.precision) for batches in phases
    ]
    largest = max(wanted, key=lambda item: item.memory)
    # the newest, the best, and the one being written
    kept = settings.keep_checkpoints + 2
    room = look_at_room(largest, folder, device, checkpoints=kept, processes=processes)
    findings = Findings(findings=tuple(room))
    if worst(room) == "stop" and not force:
        findings.tell()
        findings.stop(folder)
    return findings


def check(
    run: PretrainRun,
    store: TokenStore,
    tokenizer: Tokenizer,
    model: Model,
    phases: Sequence[PretrainingBatches],
    objective: Callable[[Model, Batch], Losses],
    *,
    processes: int = 1,
    spoken_for: float = 0.0,
) -> Findings:
    """Survey a corpus and measure a copy of the model on it; the model itself is unchanged.

    `phases` are the batches of each length, in the order of the run. Of `processes` that share a
    step, each has batches of its own. Of a budget of minutes, `spoken_for` are the seconds reserved
    for other things than steps and these checks, which take less of a smaller budget.
    """
    began = time.perf_counter()
    settings, inherited = run.settings, run.parent is not None
    seen = survey(store, tokenizer.size, _scaled(run.budget, _SURVEYED, MOST_TOKENS))
    samples = phases[-1].config
    with progress("reading some sequences", None):
        most = _scaled(run.budget, _COVERED, COVERED_TOKENS)
        shown = coverage(store, samples, settings.seed, most)
    minutes = run.budget.minutes
    seconds = MOST_SECONDS if minutes is None else 60 * minutes * _SPEED_SHARE / len(phases)
    pace = measure(
        model,
        list(zip(shares_of(settings.phases), phases, strict=True)),
        objective,
        settings.optimiser,
        settings.precision,
        accumulate=settings.gradient_accumulation,
        processes=processes,
        seconds=min(MOST_SECONDS, seconds),
    )
    spoken_for += time.perf_counter() - began
    rows = model.config.encoder.vocabulary
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Findings(
        findings=(
            *look_at_text(store, tokenizer, seen),
            *look_at_vocabulary(store, tokenizer, seen, rows, inherited=inherited),
            *look_at_sequences(store, samples, seen, shown),
            *_loss(tokenizer, seen.unigram_entropy, pace, inherited=inherited),
            *look_at_speed(pace),
            *look_at_time(pace, run.budget, spoken_for),
            *look_at_budget(store, pace, run.budget, parameters, spoken_for),
            look_at_format(model.config),
        )
    )


def look_at_format(config: ModelConfig) -> Finding:
    """Return the format that the model will be saved in; if it is our own, with the reason."""
    reason, name = cannot_hold(config), format_of(config)
    readers = f"{FORMATS[name].classes}Model of transformers loads"
    why = readers if reason is None else f"only bertsmith loads: {reason}"
    return Finding(name="model folder", found=f"model_type {name}, which {why}")


def _scaled(budget: Budget, a_minute: int, most: int) -> int:
    """Return the tokens to survey: a number per minute of a small budget, and at most `most`."""
    return (
        most
        if budget.minutes is None
        else max(_LEAST_SEEN, min(most, int(budget.minutes * a_minute)))
    )


def _loss(tokenizer: Tokenizer, entropy: float, pace: Pace, *, inherited: bool) -> list[Finding]:
    expected, first = math.log(tokenizer.size), pace.trials[0].first_loss
    remedy = "the weights do not fit this vocabulary"
    return [
        judged(
            "loss at the start",
            f"{first:.2f}; knowing nothing costs ln {tokenizer.size:,} = {expected:.2f}",
            math.inf if math.isnan(first) else first - expected,
            (1.0, 5.0),
            f"{remedy}: name the model that the store was prepared for" if inherited else remedy,
        ),
        Finding(
            name="loss to get below",
            found=f"{entropy:.2f}, what word frequencies alone give; a loss that stays there has "
            "learned nothing else yet",
        ),
    ]


def shares_of(phases: Sequence[Phase]) -> list[float]:
    """Return the share of the budget of each phase, the rest of the run last."""
    shares = [phase.share for phase in phases]
    return [*shares, 1 - sum(shares)]
