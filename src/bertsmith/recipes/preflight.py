"""The check before any training time is spent: is this run worth it?

Looks at the corpus, measures a few real steps, and says what the budget will see. A finding that
would waste the run stops it, with the remedy; `--force` goes on.
"""

from __future__ import annotations

import copy
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from bertsmith.batches.batch import Batch
from bertsmith.batches.pretraining import Place, PretrainingBatches
from bertsmith.batches.store import TokenStore
from bertsmith.batches.survey import Survey, survey
from bertsmith.errors import StoreError
from bertsmith.log import say, short_number
from bertsmith.models.model import Model
from bertsmith.objectives.losses import Losses
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.optimiser import Optimiser, OptimiserConfig
from bertsmith.training.precision import Precision, autocast
from bertsmith.training.schedule import Budget

Verdict = Literal["fine", "look", "stop"]

TRIAL_STEPS, _UNTIMED = 5, 1
_TRIAL_TOKENS = 20_000


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the check: what was found, whether that is fine, and what to do if not."""

    name: str
    found: str
    verdict: Verdict = "fine"
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What a few real steps took, without evaluation and saving."""

    tokens_per_second: float
    seconds_a_step: float
    peak_gigabytes: float
    first_loss: float


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """All findings."""

    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return asdict(self)

    def tell(self) -> None:
        """Print the page."""
        say("before training:")
        width = max(len(finding.name) for finding in self.findings)
        for finding in self.findings:
            say(f"  {finding.name:<{width}}  {finding.found}")
            if finding.verdict != "fine":
                say(f"  {'':<{width}}  {finding.verdict}: {finding.remedy}")

    def stop(self, store: TokenStore) -> None:
        """Raise `StoreError` if anything found would waste the run."""
        stops = [finding for finding in self.findings if finding.verdict == "stop"]
        if stops:
            raise StoreError(
                "; ".join(f"{finding.name}: {finding.found}" for finding in stops),
                where=store.folder,
                remedy="; ".join(finding.remedy for finding in stops) + "; or go on with --force",
            )


def check(
    store: TokenStore,
    tokenizer: Tokenizer,
    model: Model,
    batches: PretrainingBatches,
    objective: Callable[[Model, Batch], Losses],
    *,
    optimiser: OptimiserConfig,
    precision: Precision,
    accumulate: int,
    budget: Budget,
) -> Preflight:
    """Look at a corpus and measure a copy of the model on it; the model itself is left alone."""
    seen = survey(store, tokenizer.size)
    speed = measure(model, batches, objective, optimiser, precision, accumulate)
    return Preflight(
        findings=(
            *_corpus(store, tokenizer, seen, pairs=batches.config.pairs),
            *_loss(tokenizer, seen, speed),
            *_budget(store, speed, budget),
        )
    )


def measure(
    model: Model,
    batches: PretrainingBatches,
    objective: Callable[[Model, Batch], Losses],
    optimiser: OptimiserConfig,
    precision: Precision,
    accumulate: int,
) -> Speed:
    """Take a few steps with a copy of the model; the first is not timed."""
    trial = copy.deepcopy(model).train()
    stepper, place = Optimiser(trial, optimiser), Place()
    tokens, loss, began = 0, math.nan, time.perf_counter()
    for step in range(TRIAL_STEPS):
        if step == _UNTIMED:
            tokens, began = 0, time.perf_counter()
        for _ in range(accumulate):
            batch, place = batches.take(place)
            with autocast(precision, model.device):
                losses = objective(trial, batch.to(model.device))
            losses.total().backward()
            tokens += batch.tokens
            if math.isnan(loss):
                first = next(iter(losses.parts.values()))
                loss = first.sum.item() / max(first.count, 1)
        stepper.step(0.0)
    seconds = time.perf_counter() - began
    # kilobytes, but bytes on a Mac
    unit = 1e-9 if sys.platform == "darwin" else 1.024e-6
    return Speed(
        tokens_per_second=tokens / seconds,
        seconds_a_step=seconds / (TRIAL_STEPS - _UNTIMED),
        peak_gigabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        first_loss=loss,
    )


def _corpus(store: TokenStore, tokenizer: Tokenizer, seen: Survey, *, pairs: bool) -> list[Finding]:
    index = store.index
    # a handful of text is there to try things on, and nothing is lost on it
    trial = 1.0 if index.tokens > _TRIAL_TOKENS else math.inf
    commonest = tokenizer.decode(seen.commonest_sentence.tolist()[:12])
    unknown = index.unknown / index.tokens
    findings = [
        Finding(
            name="corpus",
            found=f"{index.documents:,} documents, {short_number(index.tokens)} tokens, "
            f"{index.tokens / max(index.words, 1):.2f} a word; {index.duplicates:,} duplicates "
            "left out",
        ),
        _judged(
            "documents nearly alike",
            f"{_percent(seen.near_duplicates)} share most of their text with another",
            seen.near_duplicates,
            (0.3, 0.8 * trial),
            "leave copies and templates out of the corpus",
        ),
        _judged(
            "sentences that repeat",
            f"{_percent(seen.repeated_sentences)}"
            + (
                f"; commonest, {seen.commonest_count} times: {commonest}"
                if seen.commonest_count > 1
                else ""
            ),
            seen.repeated_sentences,
            (0.35, 0.6 * trial),
            "repeated lines keep the loss near 7: remove boilerplate from the corpus",
        ),
        _judged(
            "[UNK]",
            f"{_percent(unknown)} of the tokens",
            unknown,
            (0.01, 0.1),
            "learn a vocabulary from this corpus with `bertsmith vocab learn`",
        ),
    ]
    if pairs:
        single = seen.single_sentence_documents
        findings.append(
            _judged(
                "documents of one sentence",
                f"{_percent(single)}; they make no next-sentence pair",
                single,
                (0.5, 0.95),
                "put blank lines between documents only, or train with "
                "--samples.text within_documents",
            )
        )
    return findings


def _loss(tokenizer: Tokenizer, seen: Survey, speed: Speed) -> list[Finding]:
    expected = math.log(tokenizer.size)
    return [
        _judged(
            "loss at the start",
            f"{speed.first_loss:.2f}; a new model starts near ln {tokenizer.size:,} = "
            f"{expected:.2f}",
            speed.first_loss - expected,
            (1.0, 5.0),
            "the weights do not fit this vocabulary",
        ),
        Finding(
            name="loss to get below",
            found=f"{seen.unigram_entropy:.2f}, what word frequencies alone give",
        ),
    ]


def _budget(store: TokenStore, speed: Speed, budget: Budget) -> list[Finding]:
    if budget.steps is not None:
        seconds, steps = budget.steps * speed.seconds_a_step, float(budget.steps)
    else:
        assert budget.minutes is not None
        seconds, steps = 60 * budget.minutes, 60 * budget.minutes / speed.seconds_a_step
    tokens = seconds * speed.tokens_per_second
    return [
        Finding(
            name="speed",
            found=f"{short_number(speed.tokens_per_second)} tokens/s, "
            f"{1000 * speed.seconds_a_step:.0f} ms a step; "
            f"{speed.peak_gigabytes:.1f} GB of memory",
        ),
        _judged(
            "the budget sees",
            f"{short_number(tokens)} tokens in {steps:,.0f} steps, {seconds / 60:.1f} minutes: "
            f"the corpus {tokens / store.tokens:.2g} times",
            tokens / store.tokens,
            (40.0, 400.0),
            "more text, or fewer minutes: beyond 40 times over, little is learned from the same",
        ),
        _judged(
            "steps",
            f"{steps:,.0f}",
            -steps,
            (-100.0, math.inf),
            "give more time, or a smaller --model, or smaller --samples.tokens_per_batch",
        ),
    ]


def _judged(
    name: str, found: str, figure: float, limits: tuple[float, float], remedy: str
) -> Finding:
    """A finding to be looked at above the first limit, and to stop for above the second."""
    verdict: Verdict = "stop" if figure > limits[1] else "look" if figure > limits[0] else "fine"
    return Finding(name=name, found=found, verdict=verdict, remedy=remedy)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
