"""Everything a fine-tuning run reads before it trains: model, examples, their encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.core.log import say
from bertsmith.hub.models import model_folder
from bertsmith.network.flops import Work, training_flops
from bertsmith.network.model import Model, ModelConfig
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.finetune.experiment import Asked
from bertsmith.recipes.finetune.labelled import LabelledData, read_labelled
from bertsmith.recipes.finetune.scores import describe
from bertsmith.recipes.finetune.settings import FinetuneConfig
from bertsmith.recipes.finetune.starting import abstaining, check_layers, check_task
from bertsmith.recipes.finetune.trial import Prepared, prepare
from bertsmith.recipes.room import free_memory, layer_activations
from bertsmith.reports.model_card import note_on_format
from bertsmith.tasks.table import task_for
from bertsmith.tasks.task import Room, Task
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model

MOST = 512
# share of the texts to read in full, and the multiple that lengths are rounded up to
_COVERED, _MULTIPLE = 0.95, 64
_LOOKED_AT = 2000
# operations of all trainings: about an hour on two cores with bfloat16 products
_OPERATIONS, _OPERATIONS_OF_A_GPU = 1e15, 1e17
_SHARE_OF_MEMORY = 0.5


@dataclass(frozen=True, kw_only=True)
class ReadingLength:
    """Maximum number of tokens read of a text, and a message about it ("" for none)."""

    longest: int
    told: str = ""


def reading_length(
    task: Task[Any],
    rows: Sequence[Any],
    tokenizer: Tokenizer,
    config: ModelConfig,
    settings: FinetuneConfig,
    trainings: int,
    device: torch.device,
) -> ReadingLength:
    """Choose the maximum length for a number of trainings on some rows.

    It is the task's default if windows read all of a text, for a benchmark's task, and if 95 % of
    the rows are no longer.
    """
    usual, limit = task.longest, min(config.encoder.longest, MOST)
    if not task.fits or settings.long == "windows" or task.name != task.called or limit <= usual:
        return ReadingLength(longest=min(usual, config.encoder.longest))
    step = -(-len(rows) // _LOOKED_AT)
    encoded = task.encode(tokenizer, rows[::step], (), Room(longest=limit), labelled=False)
    lengths = np.array([len(ids) for ids in encoded.ids], np.int64)
    wanted = int(np.quantile(lengths, _COVERED, method="inverted_cdf"))
    wanted = min(limit, -(-wanted // _MULTIPLE) * _MULTIPLE)
    if wanted <= usual:
        return ReadingLength(longest=usual)
    most = _OPERATIONS if device.type == "cpu" else _OPERATIONS_OF_A_GPU
    memory = free_memory(device)
    times = len(rows) / len(rows[::step]) * settings.epochs * trainings
    chosen = usual
    for longest in (*range(usual, wanted, _MULTIPLE), wanted):
        operations = times * _operations(config, np.minimum(lengths, longest))
        half = settings.precision == "bf16"
        kept = settings.batch * longest * layer_activations(config.encoder, longest, half=half)
        room = memory is None or kept <= _SHARE_OF_MEMORY * memory
        if longest > usual and (operations > most or not room):
            break
        chosen = longest
    whole = 100 * float(np.mean((lengths <= chosen) & (lengths < limit)))
    told = f"up to {chosen} tokens of a text are read, all of {whole:.0f} % of them"
    if chosen < wanted:
        told += f"; more would take too much time or memory, --longest {wanted} reads more"
    return ReadingLength(longest=chosen, told=told)


def _operations(config: ModelConfig, lengths: NDArray[np.int64]) -> float:
    """Return the operations of training once on sequences of these lengths."""
    work = Work(tokens=int(lengths.sum()), pairs=int((lengths**2).sum()), sequences=len(lengths))
    return training_flops(config, work)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """An initial model, and the rows read and checked for it."""

    task: Task[Any]
    base: Model
    tokenizer: Tokenizer
    data: LabelledData[Any]

    def length(self, settings: FinetuneConfig, asked: Asked, device: torch.device) -> ReadingLength:
        """Return the maximum length of a text: that of the settings, or one that fits the texts."""
        if settings.longest is not None:
            return ReadingLength(longest=settings.longest)
        trainings = sum(asked.counts(settings, len(self.data.train)))
        config = self.base.config
        return reading_length(
            self.task, self.data.train, self.tokenizer, config, settings, trainings, device
        )

    def prepared(self, settings: FinetuneConfig) -> Prepared:
        """Return the rows, encoded by the settings."""
        room = room_of(self.task, settings, self.base.config.encoder.longest)
        return prepare(self.data, self.tokenizer, room)


def read_inputs(
    model: Path, train: Path, dev: Path | None, task: str | None, settings: FinetuneConfig
) -> Inputs:
    """Read the inputs of a fine-tuning run, and print the task and how the rows were read.

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
    """Return how much of a text is read at once, by the settings and the model's limit."""
    longest = min(settings.longest or task.longest, limit)
    return Room(longest=longest, long=settings.long, stride=settings.stride)
