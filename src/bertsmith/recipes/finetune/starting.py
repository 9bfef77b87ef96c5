"""Preparation of a model for fine-tuning: dropout, new top layers, frozen bottom layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ConfigError
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.model import Model, initialise
from bertsmith.recipes.finetune.settings import FinetuneConfig
from bertsmith.tasks.choice import Choice
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.task import Task

# share of all rows; above it, trimming saves little
_MOST = 0.7


@contextmanager
def trimmed_embeddings(model: Model, examples: EncodedExamples) -> Iterator[EncodedExamples]:
    """Yield the examples with new ids, for a token table trimmed to the tokens that they use.

    The table is restored afterwards. Nothing is trimmed if most rows are used, if the table is not
    trained, or if another part of the model shares it.
    """
    embeddings = model.encoder.embeddings
    whole = embeddings.tokens
    met = np.unique(np.concatenate(examples.ids))
    rows = whole.num_embeddings
    if model.config.masked_lm or not whole.weight.requires_grad or len(met) > _MOST * rows:
        yield examples
        return
    places = torch.from_numpy(met.astype(np.int64)).to(model.device)
    embeddings.tokens = nn.Embedding.from_pretrained(whole.weight.detach()[places], freeze=False)
    number = np.zeros(rows, np.int32)
    number[met] = np.arange(len(met))
    try:
        yield replace(examples, ids=[number[ids] for ids in examples.ids])
    finally:
        with torch.no_grad():
            whole.weight[places] = embeddings.tokens.weight
        embeddings.tokens = whole


def prepare_model(model: Model, config: FinetuneConfig, seed: int) -> None:
    """Prepare a model for training; raises `ConfigError` for more layers than there are.

    New weights are a pure function of the seed.
    """
    check_layers(model, config)
    model.set_dropout(config.dropout)
    if config.reinitialise:
        reinitialise(model, config.reinitialise, seed)
    if config.freeze:
        freeze(model, max(config.freeze, 0))


def check_layers(model: Model, config: FinetuneConfig) -> None:
    """Raise `ConfigError` for more layers than there are."""
    layers = len(model.encoder.blocks)
    for name in ("reinitialise", "freeze"):
        if getattr(config, name) > layers:
            raise ConfigError(
                f"{name} is {getattr(config, name)}",
                remedy=f"the model has {layers} layers of its own",
            )
    if config.reinitialise + max(config.freeze, 0) > layers:
        raise ConfigError(
            f"reinitialise {config.reinitialise} and freeze {config.freeze} overlap",
            remedy=f"new layers must be trained: {layers} layers in all",
        )


def check_task(task: Task[Any], config: FinetuneConfig) -> None:
    """Raise `ConfigError` for settings that do not apply to a task."""
    given = {"class_weights": config.class_weights != "none", "smoothing": config.smoothing > 0}
    for name, is_given in given.items():
        if is_given and not task.weighs:
            raise ConfigError(
                f"{name} is {getattr(config, name)}, and {task.name} has no classes",
                remedy="leave it out",
            )


def abstaining(task: Task[Any], config: FinetuneConfig) -> Task[Any]:
    """Return the task with the target accuracy of its answers; `ConfigError` if not supported.

    Answers are then withheld below a probability that is chosen on dev.
    """
    if config.target_accuracy is None:
        return task
    if not isinstance(task, Classify | Choice):
        raise ConfigError(
            f"target_accuracy is {config.target_accuracy}, and {task.name} has neither classes nor "
            "choices",
            remedy="leave it out",
        )
    return replace(task, target_accuracy=config.target_accuracy)


def reinitialise(model: Model, layers: int, seed: int) -> None:
    """Reinitialise the top layers and the pooler.

    The top of a pre-trained encoder is specific to its objective, and another task may be learned
    faster without it (Zhang et al. 2021, section 4).
    """
    generator = torch.Generator().manual_seed(int(stream(Purpose.REINITIALISED_LAYERS, seed)))
    std = model.config.encoder.initial_std
    blocks = list(model.encoder.blocks)
    for part in (*blocks[len(blocks) - layers :], model.pooler):
        if part is not None:
            initialise(part, generator, std)


def freeze(model: Model, layers: int) -> None:
    """Freeze the embeddings and the given number of layers from the bottom."""
    for part in (model.encoder.embeddings, *list(model.encoder.blocks)[:layers]):
        part.requires_grad_(False)
