"""What is done to a model before it is fine-tuned: dropout, new top layers, frozen bottom ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from bertsmith.batches.randomness import Purpose, stream
from bertsmith.errors import ConfigError
from bertsmith.models.model import Model, initialise
from bertsmith.recipes.finetune_settings import FinetuneConfig
from bertsmith.recipes.tasks.choice import Choice
from bertsmith.recipes.tasks.classify import Classify
from bertsmith.recipes.tasks.task import Task


def prepare_model(model: Model, config: FinetuneConfig, seed: int) -> None:
    """Make a model ready for training; raises `ConfigError` for more layers than there are.

    New weights are a pure function of the seed.
    """
    check_layers(model, config)
    model.set_dropout(config.dropout)
    if config.reinitialise:
        reinitialise(model, config.reinitialise, seed)
    if config.freeze:
        freeze(model, max(config.freeze, 0))


def check_layers(model: Model, config: FinetuneConfig) -> None:
    """Raises `ConfigError` for more layers than there are."""
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
    """Raises `ConfigError` for settings that say nothing to a task."""
    given = {"class_weights": config.class_weights != "none", "smoothing": config.smoothing > 0}
    for name, is_given in given.items():
        if is_given and not task.weighs:
            raise ConfigError(
                f"{name} is {getattr(config, name)}, and {task.name} has no classes",
                remedy="leave it out",
            )


def abstaining(task: Task[Any], config: FinetuneConfig) -> Task[Any]:
    """Return the task with the accuracy wanted of the answers it gives; `ConfigError` if it cannot.

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
    """Give the top layers, and the pooler, the weights that a new model would start from.

    The top of a pre-trained encoder serves its own task, and another one may learn faster without
    it (Zhang et al. 2021, section 4).
    """
    generator = torch.Generator().manual_seed(int(stream(Purpose.REINITIALISED_LAYERS, seed)))
    std = model.config.encoder.initial_std
    blocks = list(model.encoder.blocks)
    for part in (*blocks[len(blocks) - layers :], model.pooler):
        if part is not None:
            initialise(part, generator, std)


def freeze(model: Model, layers: int) -> None:
    """Let the embeddings and so many layers from the bottom keep their weights."""
    for part in (model.encoder.embeddings, *list(model.encoder.blocks)[:layers]):
        part.requires_grad_(False)
