"""Pre-flight check of the text: is it worth training on, and does the vocabulary suit it?"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batches.config import Phase, SampleConfig
from bertsmith.batches.pretraining import PhasedBatches, PretrainingBatches
from bertsmith.batches.segments import Segments
from bertsmith.core.log import progress, short_number
from bertsmith.core.printable import counted
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Objective
from bertsmith.recipes.pretrain.config import PretrainRun
from bertsmith.recipes.pretrain.report import held_out_batches
from bertsmith.recipes.pretrain.speed import (
    MAX_SECONDS,
    StepCosts,
    TrainedCopy,
    check_budget,
    check_speed,
    check_time,
    measure,
)
from bertsmith.recipes.resources import (
    Finding,
    Findings,
    check_memory_and_disk,
    limit_finding,
    memory_need,
    percent,
    worst_verdict,
)
from bertsmith.store.store import TokenStore
from bertsmith.store.survey import MAX_TOKENS, Numbers, Survey, survey
from bertsmith.tokens.learning.counting import VocabularyFit
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import Budget
from bertsmith.training.peak import matrix_peak
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.formats.catalog import FORMATS, cannot_hold, format_of

# per minute of a budget: tokens surveyed and tokens of sampled sequences, a second each on a busy
# core; and the share of the budget for timing steps
_SURVEYED, _COVERED, _SPEED_SHARE = 4_000_000, 200_000, 0.03
_MIN_SURVEYED = 50_000


@dataclass(frozen=True, kw_only=True)
class OpenedRun:
    """A run with all that its network reads."""

    run: PretrainRun
    folder: RunFolder
    store: TokenStore
    tokenizer: Tokenizer
    batches: PhasedBatches
    network: ModelConfig


@dataclass(frozen=True, kw_only=True)
class PreparedRun(OpenedRun):
    """A run before its first step, with all that trains in it."""

    model: Model
    objective: Objective

    @cached_property
    def held_out(self) -> PretrainingBatches | None:
        """Return the held-out text, which is opened when it is first asked for."""
        return held_out_batches(self.tokenizer, self.store, self.run.settings.samples)


def check_resources(
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
    needs = [
        memory_need(config, batches.config, settings.optimiser, run.precision) for batches in phases
    ]
    largest = max(needs, key=lambda item: item.memory)
    # the newest, the best, and the one being written
    checkpoints = settings.keep_checkpoints + 2
    capacity = check_memory_and_disk(
        largest, folder, device, checkpoints=checkpoints, processes=processes
    )
    findings = Findings(findings=tuple(capacity))
    if worst_verdict(capacity) == "stop" and not force:
        findings.print()
        findings.raise_if_stopped(folder)
    return findings


def check(prepared: PreparedRun, *, processes: int = 1, reserved_seconds: float = 0.0) -> Findings:
    """Survey a corpus and measure a copy of the model on it; the model itself is unchanged.

    Of `processes` that share a step, each has separate batches. Of a budget of minutes,
    `reserved_seconds` are for other things than steps and these checks, which take less of a
    smaller budget.
    """
    started = time.perf_counter()
    run, store, tokenizer, model = prepared.run, prepared.store, prepared.tokenizer, prepared.model
    phases, settings, inherited = prepared.batches.parts, run.settings, run.parent is not None
    seen = survey(store, tokenizer.size, _survey_tokens(run.budget, _SURVEYED, MAX_TOKENS))
    samples = phases[-1].config
    with progress("reading some sequences", None):
        max_tokens = _survey_tokens(run.budget, _COVERED, COVERED_TOKENS)
        shown = coverage(store, samples, settings.seed, max_tokens)
    minutes = run.budget.minutes
    seconds = MAX_SECONDS if minutes is None else 60 * minutes * _SPEED_SHARE / len(phases)
    costs = measure(
        TrainedCopy(model, prepared.objective, settings.optimiser, run.precision),
        list(zip(shares_of(settings.phases), phases, strict=True)),
        seconds=min(MAX_SECONDS, seconds),
    )
    accumulate = settings.gradient_accumulation
    costs = replace(costs, accumulate=accumulate, processes=processes, replicas=run.replicas)
    if run.replicas > 1:
        peak = matrix_peak(run.precision, model.device, processes=run.replicas)
        costs = replace(costs, peak=peak)
    reserved_seconds += time.perf_counter() - started
    rows = model.config.encoder.vocabulary
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Findings(
        findings=(
            *check_text(store, tokenizer, seen),
            *_held_out_text(store),
            *check_vocabulary(store, tokenizer, seen, rows, inherited=inherited),
            *check_sequences(store, samples, seen, shown),
            *_loss(tokenizer, seen.unigram_entropy, costs, inherited=inherited),
            *check_speed(costs),
            *check_time(costs, run.budget, reserved_seconds),
            *check_budget(store, costs, run.budget, parameters, reserved_seconds),
            check_format(model.config),
        )
    )


def _held_out_text(store: TokenStore) -> list[Finding]:
    """Return a finding for a store that holds nothing out, as one of a few documents may."""
    if store.held_out() is not None:
        return []
    found = "none; the run will not show the loss on text that the model has not seen"
    remedy = "prepare more documents, or with a larger --held-out"
    return [Finding(name="held-out text", found=found, verdict="look", remedy=remedy)]


def check_format(config: ModelConfig) -> Finding:
    """Return the format that the model will be saved in; if it is our own, with the reason."""
    reason, name = cannot_hold(config), format_of(config)
    readers = f"{FORMATS[name].classes}Model of transformers loads"
    note = readers if reason is None else f"only bertsmith loads: {reason}"
    return Finding(name="model folder", found=f"model_type {name}, which {note}")


def _survey_tokens(budget: Budget, per_minute: int, maximum: int) -> int:
    """Return the tokens to survey: a number per minute of a small budget, and at most `maximum`."""
    if budget.minutes is None:
        return maximum
    return max(_MIN_SURVEYED, min(maximum, int(budget.minutes * per_minute)))


def _loss(
    tokenizer: Tokenizer, entropy: float, costs: StepCosts, *, inherited: bool
) -> list[Finding]:
    expected, first = math.log(tokenizer.size), costs.trials[0].first_loss
    remedy = "the weights do not fit this vocabulary"
    return [
        limit_finding(
            "initial loss",
            f"{first:.2f}; uniform guessing gives ln {tokenizer.size:,} = {expected:.2f}",
            math.inf if math.isnan(first) else first - expected,
            (1.0, 5.0),
            f"{remedy}: name the model that the store was prepared for" if inherited else remedy,
        ),
        Finding(
            name="unigram loss",
            found=f"{entropy:.2f}, from word frequencies alone; a loss that stays there has "
            "learned nothing else yet",
        ),
    ]


def shares_of(phases: Sequence[Phase]) -> list[float]:
    """Return the share of the budget of each phase, the rest of the run last."""
    shares = [phase.share for phase in phases]
    return [*shares, 1 - sum(shares)]


COVERED_TOKENS = 500_000


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Statistics of a sample of the sequences."""

    hidden: float
    """Share of the tokens that are in no sequence of the epoch."""
    torn: float
    """Share of the sequences that begin within a sentence."""
    unlabelled: float
    """Share of the sequences of one segment, without a next-sentence label; 0 if there are no such
    labels."""


def coverage(
    store: TokenStore, config: SampleConfig, seed: int, max_tokens: int = COVERED_TOKENS
) -> Coverage:
    """Return the statistics of some sequences of an epoch, of at most about `max_tokens` tokens."""
    # for a share, it does not matter at which token of a word a cut falls
    nowhere = np.broadcast_to(np.False_, store.tokens)
    text = (_Positions(store), config.text, config.max_length, nowhere, seed)
    specials = 2 + config.pairs
    segments = Segments(*text, config.short_sequences, specials=specials)
    whole = Segments(*text, specials=specials)
    index = np.arange(min(segments.count, max(2, max_tokens // config.max_length)))
    samples = segments.read(index, 0, segments.cut(index, 0))
    cuts = whole.cut(index, 0)
    shown = np.unique(np.concatenate([part for sample in samples for part in sample.parts]))
    order = np.argsort(cuts.starts)
    starts, ends = cuts.starts[order], cuts.ends[order]
    window = np.searchsorted(starts, shown, side="right") - 1
    inside = (window >= 0) & (shown < ends[window])
    sentences = store.sentences
    begins = np.asarray(sentences[np.searchsorted(sentences, cuts.starts)]) == cuts.starts
    return Coverage(
        hidden=1 - float(inside.sum() / (ends - starts).sum()),
        torn=1 - float(begins.mean()),
        unlabelled=float(np.mean([sample.label is None for sample in samples])) * config.pairs,
    )


class _Positions(TokenStore):
    """A store that returns the positions of tokens instead of their ids."""

    def __init__(self, store: TokenStore) -> None:
        self.__dict__.update(store.__dict__)

    def read(self, start: int, end: int) -> NDArray[np.integer]:
        """Return the positions from start to end."""
        return np.arange(start, end)


# a very small corpus is there to try things, and loses nothing by it
_TRIAL_TOKENS = 20_000
_FEW_DOCUMENTS = 20
# per word, or per character if there are no spaces between words
_MAX_PIECES = {"word": 3.0, "character": 1.5}
_OWN_VOCABULARY = "learn a vocabulary from this corpus with `bertsmith vocab learn`"


def check_text(store: TokenStore, tokenizer: Tokenizer, seen: Survey) -> list[Finding]:
    """Return findings on copies and repetitions."""
    index = store.index
    trial = 1.0 if index.tokens > _TRIAL_TOKENS else math.inf
    text = "documents" if seen.whole else f"{counted(seen.documents, 'document')} examined"
    example = f"; one begins: {_text(tokenizer, seen.near_duplicate)}"
    return [
        Finding(
            name="corpus",
            found=f"{counted(index.documents, 'document')}, {short_number(index.tokens)} tokens; "
            f"{counted(index.duplicates, 'exact duplicate')} left out"
            + ("" if seen.whole else f"; {short_number(seen.tokens)} tokens of it examined"),
        ),
        limit_finding(
            "near duplicates",
            f"{percent(seen.near_duplicates)} of the {text} share most of their text with others"
            + (example if seen.near_duplicates > 0.05 else ""),
            seen.near_duplicates,
            (0.3, 0.8 * trial),
            "leave copies and templates out of the corpus",
        ),
        limit_finding(
            "repeated sentences",
            f"{percent(seen.repeated_sentences)}"
            + ("" if seen.whole else f" of {seen.sentences:,} examined"),
            seen.repeated_sentences,
            (0.35, 0.6 * trial),
            "the model would learn repeated lines instead of the language: remove boilerplate from "
            "the corpus",
        ),
        limit_finding(
            "most frequent sentence",
            f"{seen.commonest_count:,} times, {percent(seen.commonest_share)} of the text: "
            f"{_text(tokenizer, seen.commonest_sentence)}"
            if seen.commonest_count > 1
            else "no sentence occurs twice",
            seen.commonest_share,
            (0.01, 0.05 * trial),
            "remove that line from the corpus: the model would learn it instead of the language",
        ),
    ]


def check_vocabulary(
    store: TokenStore, tokenizer: Tokenizer, seen: Survey, rows: int, *, inherited: bool
) -> list[Finding]:
    """Return findings on the vocabulary; `rows` is the model's, `inherited` from another one."""
    index = store.index
    fit = VocabularyFit(size=index.text, pieces=index.tokens, unknown=index.unknown)
    name = tokenizer.vocabulary[tokenizer.unknown_id]
    ordinary = tokenizer.ordinary_ids
    unused = float(np.mean(seen.counts[ordinary] == 0))
    where = "it" if seen.whole else f"{short_number(seen.tokens)} tokens of it"
    description = (
        f"{tokenizer.size:,} pieces as in the store; {percent(unused)} of them do not occur in "
        f"{where}"
    )
    if rows != tokenizer.size:
        description = f"{rows:,} in the model, {tokenizer.size:,} in the store"
    remedy = "a smaller one trains faster and better: `bertsmith vocab learn --size`"
    limits = (math.inf, math.inf) if inherited else (0.3, math.inf)
    return [
        limit_finding(
            "vocabulary",
            description,
            math.inf if rows < tokenizer.size else unused,
            (limits[0], 1.0),
            remedy if rows >= tokenizer.size else "use a model with the store's vocabulary",
        ),
        limit_finding(
            f"pieces per {fit.size.unit}",
            f"{fit.pieces_per_unit:.2f}",
            fit.pieces_per_unit,
            (_MAX_PIECES[fit.size.unit], math.inf),
            f"the vocabulary cuts this text into small pieces: {_OWN_VOCABULARY}, or a larger one "
            "(--size) if this one was",
        ),
        limit_finding(
            name,
            f"{percent(fit.unknown_share)} of the tokens",
            fit.unknown_share,
            (0.01, 0.1),
            f"{_OWN_VOCABULARY}, or with a higher --character-coverage if this one was",
        ),
    ]


def check_sequences(
    store: TokenStore, samples: SampleConfig, seen: Survey, shown: Coverage
) -> list[Finding]:
    """Return findings on the sequences."""
    reason = (
        "sequences end early" if samples.short_sequences else "random next sentences replace it"
    )
    findings = [
        limit_finding(
            "text left out",
            (
                f"{percent(shown.hidden)} in this epoch, because {reason}; other epochs include it"
                if shown.hidden
                else "none"
            )
            + f"; {percent(shown.torn)} of the sequences begin inside a sentence",
            shown.hidden,
            (0.2, math.inf),
            "documents are too short for pairs: train with --sequences within_documents",
        )
    ]
    if not samples.pairs:
        return findings
    remedy = "train with --sequences within_documents"
    findings.append(
        limit_finding(
            "documents of one sentence",
            f"{percent(seen.single_sentence_documents)}; they form no "
            f"{samples.text.replace('_', '-')} pairs",
            seen.single_sentence_documents,
            (0.5, 0.95),
            f"put blank lines between documents only, or {remedy}",
        )
    )
    is_small = store.index.documents < _FEW_DOCUMENTS and samples.text == "next_sentence"
    findings.append(
        limit_finding(
            "sequences without a pair",
            percent(shown.unlabelled)
            + (
                f"; random next sentences come from {counted(store.index.documents, 'document')}"
                if is_small
                else ""
            ),
            1.0 if is_small and store.tokens > _TRIAL_TOKENS else shown.unlabelled,
            (0.5, math.inf),
            f"put blank lines between documents, or {remedy}",
        )
    )
    return findings


def _text(tokenizer: Tokenizer, ids: Numbers) -> str:
    shown = tokenizer.decode(ids.tolist()[:12])
    return f'"{shown}{" ..." if len(ids) > 12 else ""}"'
