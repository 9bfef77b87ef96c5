"""What both sides report, and our own side."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.examples import ExampleBatches
from bertsmith.network.batch import Batch
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.inputs import Prepared, limits_of, prepare
from bertsmith.recipes.finetune.recipe import ModelFactory
from bertsmith.recipes.finetune.trial import prepare_model, run_trial, trimmed_embeddings
from bertsmith.tasks.answering import measure, task_predictor
from bertsmith.training.loop import fit
from bertsmith.weights.folder import load_model
from bertsmith.weights.versions import FolderVersion
from finetuning.tasks import Learned


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A fine-tuning: scores in shares of 1; seconds of training, of all from opening the model to
    the scores, and of processor time in all; tokens of text a second of training steps.

    Where only some steps were made and some rows of dev answered, the seconds are what the whole
    would have taken at that speed.
    """

    scores: dict[str, float] = field(default_factory=dict)
    training: float = 0.0
    wall: float = 0.0
    processor: float = 0.0
    tokens_per_second: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What of a fine-tuning is done where only its speed is asked: steps, the first ones to warm
    up, and rows of dev.
    """

    steps: int
    warm: int = 5
    rows: int = 256

    def whole(self, speed: float, opening: float, answering: float, all_tokens: int) -> Ended:
        """The figures of the whole, from tokens a second and the seconds before and after."""
        training = all_tokens / speed
        return Ended(
            training=training, wall=opening + training + answering, tokens_per_second=speed
        )


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

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / (self.last - self.began)


def train(learned: Learned, model: Path, seed: int, *, sample: Sample | None = None) -> Ended:
    """Fine-tune and measure with bertsmith; with a `sample`, only as much as tells the speed."""
    began = time.perf_counter()
    data, settings = learned.data, learned.settings
    base, tokenizer = load_model(model)
    limits = limits_of(data.task, settings, base.config.encoder.longest)
    if data.task.head == "span":
        limits = replace(limits, stride=128)
    prepared = prepare(data, tokenizer, limits)
    make = ModelFactory(FolderVersion.of(model), data.task.head, data.labels, torch.device("cpu"))
    if sample is not None:
        net = make(seed)
        opened = time.perf_counter()
        speed = _speed(prepared, net, learned, seed, sample)
        tokens = settings.chosen_epochs * sum(map(len, prepared.train.ids))
        return sample.whole(speed, opened - began, _answering(prepared, net, sample), tokens)
    result, _, net = run_trial(make, prepared, settings, seed)
    wall = time.perf_counter() - began
    scores = dict(result.scores)
    if learned.test:
        test = prepare(learned.tested.data, tokenizer, limits).dev
        predictor = task_predictor(data.task, net, tokenizer, limits)
        found = measure(predictor, learned.test, test).scores
        scores |= {f"test_{name}": value for name, value in found.items()}
    return Ended(
        scores=scores,
        training=result.seconds,
        wall=wall,
        processor=time.process_time(),
        tokens_per_second=result.tokens / result.seconds,
    )


def _answering(prepared: Prepared, net: Model, sample: Sample) -> float:
    """Seconds to answer all of dev, from those for some of it."""
    data, task = prepared.data, prepared.task
    some = replace(data, dev=data.dev[: sample.rows])
    net.eval()
    began = time.perf_counter()
    predictor = task_predictor(task, net, prepared.tokenizer, prepared.limits)
    measure(predictor, some.dev, predictor.answering.encode(some.dev))
    return (time.perf_counter() - began) * len(data.dev) / len(some.dev)


def _speed(prepared: Prepared, net: Model, learned: Learned, seed: int, sample: Sample) -> float:
    settings, timed = learned.settings, Steps(warm=sample.warm)
    prepare_model(net, settings, seed)
    objective = learned.data.task.learning.objective(
        learned.data.train, learned.data.labels, settings.label_loss
    )

    with trimmed_embeddings(net, prepared.train) as examples:
        source = ExampleBatches(examples, units_per_batch=settings.batch_size, seed=seed)

        class Timed:
            """The batches, a step being over when the next one is asked for."""

            tokens = 0

            def next_batch(self, place: DataPosition) -> tuple[Batch, DataPosition]:
                if self.tokens:
                    timed.count(self.tokens)
                batch, after = source.next_batch(place)
                self.tokens = batch.tokens
                return batch, after

        # a line of the log is written as seldom as in a whole training
        config = replace(settings.fit(sample.steps + 1, seed), log_every=20)
        fit(config, net, objective, Timed())
    return timed.speed
