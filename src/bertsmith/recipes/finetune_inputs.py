"""Everything a fine-tuning reads before it trains: the model, the examples, their encoding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertsmith.log import say
from bertsmith.models.model import Model
from bertsmith.recipes.card import note_on_format
from bertsmith.recipes.contest import Asked
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.finetune_settings import FinetuneConfig
from bertsmith.recipes.labelled import LabelledData, read_labelled
from bertsmith.recipes.reading_length import ReadingLength, reading_length
from bertsmith.recipes.scores import describe
from bertsmith.recipes.starting import abstaining, check_layers, check_task
from bertsmith.recipes.tasks.recognising import task_for
from bertsmith.recipes.tasks.task import Room, Task
from bertsmith.recipes.trial import Prepared, prepare
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model
from bertsmith.weights.hub import model_folder


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A model to start from, and rows read and checked for it."""

    task: Task[Any]
    base: Model
    tokenizer: Tokenizer
    data: LabelledData[Any]

    def length(self, settings: FinetuneConfig, asked: Asked, device: torch.device) -> ReadingLength:
        """Return the tokens read of a text: those of the settings, or as the texts ask for."""
        if settings.longest is not None:
            return ReadingLength(longest=settings.longest)
        trainings = sum(asked.counts(settings, len(self.data.train)))
        config = self.base.config
        return reading_length(
            self.task, self.data.train, self.tokenizer, config, settings, trainings, device
        )

    def prepared(self, settings: FinetuneConfig) -> Prepared:
        """Return the rows encoded as the settings say."""
        room = room_of(self.task, settings, self.base.config.encoder.longest)
        return prepare(self.data, self.tokenizer, room)


def read_inputs(
    model: Path, train: Path, dev: Path | None, task: str | None, settings: FinetuneConfig
) -> Inputs:
    """Read what a fine-tuning needs, and say of which task it is and how the rows were read.

    Writes nothing. Raises `ExampleError`, `ConfigError` or `ModelFolderError`.
    """
    chosen, why = task_for(train, task, settings.reading)
    base, tokenizer = load_model(model)
    check_task(chosen, settings)
    chosen = abstaining(chosen, settings)
    check_layers(base, settings)
    if why:
        say(why)
    data = read_labelled(
        chosen,
        train,
        dev,
        settings.reading,
        known_labels=base.config.labels,
        dev_share=settings.dev_share,
        seed=settings.seed,
    )
    if note := note_on_format(base.config.with_head(chosen.predicts, data.labels)):
        say(note)
    return Inputs(task=chosen, base=base, tokenizer=tokenizer, data=data)


def dry_run(
    model: str | Path,
    train: Path,
    *,
    dev: Path | None = None,
    task: str | None = None,
    seeds: int = 5,
    settings: FinetuneConfig = FinetuneConfig(),  # noqa: B008 (frozen)
    device: str = "auto",
) -> None:
    """Read, check and describe what `finetune` would train on, and stop before any training."""
    place = device_named(device)
    inputs = read_inputs(model_folder(model), train, dev, task, settings)
    length = inputs.length(settings, Asked(seeds=seeds), place)
    prepared = inputs.prepared(replace(settings, longest=length.longest))
    bad = settings.reading.bad_rows.told()
    for line in filter(None, (bad, length.told, *describe(prepared))):
        say(line)
    say("dry run: nothing was trained, nothing was written")


def room_of(task: Task[Any], settings: FinetuneConfig, limit: int) -> Room:
    """How much of a text is read at once, by the settings and the model's limit."""
    longest = min(settings.longest or task.longest, limit)
    return Room(longest=longest, long=settings.long, stride=settings.stride)
