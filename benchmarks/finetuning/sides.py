"""What both sides report, and our own side."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from bertsmith.batches.batch import Batch
from bertsmith.batches.examples import ExampleBatches
from bertsmith.batches.pretraining import Place
from bertsmith.models.model import Model
from bertsmith.recipes.finetune import model_maker, room_of
from bertsmith.recipes.met_rows import met_rows
from bertsmith.recipes.starting import prepare_model
from bertsmith.recipes.trial import Prepared, prepare, run_trial
from bertsmith.training.loop import fit
from bertsmith.weights.folder import load_model
from finetuning.tasks import Learned


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A fine-tuning: scores in shares of 1; seconds in training, its reading of the rows included,
    and in all; tokens of text a second of training steps.
    """

    scores: dict[str, float] = field(default_factory=dict)
    training: float = 0.0
    wall: float = 0.0
    tokens_per_second: float = 0.0


@dataclass
class Steps:
    """Counts tokens and time of steps, the first ones left out."""

    warm: int
    steps: int = 0
    tokens: int = 0
    began: float = field(default_factory=time.perf_counter)
    last: float = 0.0

    def count(self, tokens: int) -> None:
        """Count a step that has ended."""
        self.steps += 1
        self.last = time.perf_counter()
        if self.steps <= self.warm:
            self.began = self.last
        else:
            self.tokens += tokens

    def ended(self, **figures: Any) -> Ended:  # noqa: ANN401
        """The figures, with the speed."""
        return Ended(tokens_per_second=self.tokens / (self.last - self.began), **figures)


def train(learned: Learned, model: Path, seed: int, *, steps: int | None) -> Ended:
    """Fine-tune and measure with bertsmith; with `steps`, only the speed of so many of them."""
    began = time.perf_counter()
    data, settings = learned.data, learned.settings
    base, tokenizer = load_model(model)
    room = room_of(data.task, settings, base.config.encoder.longest)
    if data.task.predicts == "span":
        room = replace(room, stride=128)
    prepared = prepare(data, tokenizer, room)
    make = model_maker(model, data.task, data.labels, torch.device("cpu"))
    if steps is not None:
        return _speed(prepared, make(seed), learned, seed, steps)
    result, _, _ = run_trial(make, prepared, settings, seed)
    ended = time.perf_counter()
    return Ended(
        scores=result.scores,
        training=result.seconds,
        wall=ended - began,
        tokens_per_second=result.tokens / result.seconds,
    )


def _speed(prepared: Prepared, net: Model, learned: Learned, seed: int, steps: int) -> Ended:
    settings, timed = learned.settings, Steps(warm=5)
    prepare_model(net, settings, seed)
    objective = learned.data.task.objective(learned.data.train, learned.data.labels, settings)

    with met_rows(net, prepared.train) as examples:
        source = ExampleBatches(examples, units_per_batch=settings.batch, seed=seed)

        class Timed:
            """The batches, a step being over when the next one is asked for."""

            tokens = 0

            def take(self, place: Place) -> tuple[Batch, Place]:
                if self.tokens:
                    timed.count(self.tokens)
                batch, after = source.take(place)
                self.tokens = batch.tokens
                return batch, after

        # a line of the log is written as seldom as in a whole training
        config = replace(settings.fit(steps + 1, seed), log_every=20)
        fit(config, net, objective, Timed())
    return timed.ended()
