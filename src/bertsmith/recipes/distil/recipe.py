"""Distillation, from a store or on labelled examples.

bertsmith distil TEACHER STORE --student 4/312 --method minilm --minutes 60 --out run
bertsmith distil run/model train.csv --student 3/384 --out small
"""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path

import torch

from bertsmith.core.clock import Clock
from bertsmith.core.errors import ConfigError, ExampleError, OutOfMemory
from bertsmith.core.options import options_of
from bertsmith.hub.models import model_folder
from bertsmith.recipes.distil.config import DistilConfig, GeneralSettings
from bertsmith.recipes.distil.general import distil_general
from bertsmith.recipes.distil.static import StaticOutcome, distil_static
from bertsmith.recipes.distil.task import distil_task
from bertsmith.recipes.distil.trainings import DistilOutcome
from bertsmith.recipes.pretrain.recipe import PretrainOutcome
from bertsmith.recipes.resources import free_memory, gigabytes
from bertsmith.store.store import INDEX


def check_memory(teacher: Path) -> None:
    """Raise `OutOfMemory` for a teacher whose weights are larger than the free memory."""
    free = free_memory(torch.device("cpu"))
    need = sum(file.stat().st_size for file in teacher.glob("*.safetensors"))
    if free is not None and need > free:
        raise OutOfMemory(
            f"the teacher's weights are {gigabytes(need)}, and {gigabytes(free)} are free",
            where=teacher,
            remedy="use a smaller teacher, or another machine",
        )


def distil(
    config: DistilConfig, *, clock: Clock | None = None
) -> DistilOutcome | PretrainOutcome | StaticOutcome:
    """Teach a student, from a store where `data` is one, otherwise a task.

    Raises `UserError` children, and `Interrupted` with everything saved.
    """
    if not config.data.exists():
        raise ExampleError("no such file or folder", where=config.data)
    config = replace(config, teacher=model_folder(config.teacher))
    check_memory(config.teacher)
    if config.student.width is not None and config.method != ("static",):
        raise ConfigError(
            f"--student is {config.student.student}", remedy="give layers and width, as 4/312"
        )
    is_store = (config.data / INDEX).is_file()
    if "static" in config.method and (len(config.method) > 1 or not is_store):
        raise ConfigError(
            "static vectors are made of a teacher and a store",
            remedy="name a store, and --method static alone",
        )
    _check_options(config, is_store=is_store)
    if config.method == ("static",):
        return distil_static(config)
    return distil_general(config, clock=clock) if is_store else distil_task(config)


def _check_options(config: DistilConfig, *, is_store: bool) -> None:
    """Raise `ConfigError` for options that are for the other kind of data."""
    if is_store:
        copies, unlabelled = config.teaching.augment or None, config.teaching.unlabelled
        for name, given in (
            ("dev", config.dev),
            ("task", config.task),
            ("augment", copies),
            ("unlabelled", unlabelled),
        ):
            if given is not None:
                raise ConfigError(
                    f"--{name} is for labelled examples, and {config.data} is a store",
                    remedy="leave it out",
                )
        _refuse_labelled(config)
        if "static" in config.method:
            _refuse_general(config.general, "training, and static vectors need none")
        return
    for name, value in (("--minutes", config.minutes), ("--steps", config.steps)):
        if value is not None:
            raise ConfigError(
                f"{name} is for a store, and {config.data} holds labelled examples",
                remedy="leave it out, or give --epochs",
            )
    _refuse_general(config.general, f"a store, and {config.data} holds labelled examples")
    if config.settings.patience and set(config.method) != {"distilbert"}:
        raise ConfigError(
            "--patience could end tinybert and minilm before their head learns anything",
            remedy="leave it out, or give --method distilbert",
        )


def _refuse_general(settings: GeneralSettings, instead: str) -> None:
    """Raise `ConfigError` for a setting of distillation from a store that would change nothing."""
    for setting in fields(GeneralSettings):
        if getattr(settings, setting.name) != setting.default:
            raise ConfigError(
                f"--general.{setting.name.replace('_', '-')} is for {instead}",
                remedy="leave it out",
            )


def _refuse_labelled(config: DistilConfig) -> None:
    """Raise `ConfigError` for a setting of trainings on labelled examples, given for a store."""
    of_store = {setting.name for setting in fields(GeneralSettings)}
    for option in options_of(DistilConfig).values():
        name, value = option.path[-1], attrgetter(".".join(option.path))(config)
        counts_trainings = name in ("seeds", "side_by_side")
        of_labelled = (
            counts_trainings
            or name in ("cache", "cache_gigabytes", "plain")
            or (option.path[0] == "settings" and name != "seed")
        )
        # a store has a single training, so that 1 is true
        if not of_labelled or value == option.default or (counts_trainings and value == 1):
            continue
        # a switch that is on by default is turned off
        shown = f"--no-{option.name}" if value is False else option.shown
        raise ConfigError(
            f"{shown} is for labelled examples, and {config.data} is a store",
            remedy=f"give --general.{option.name}" if name in of_store else "leave it out",
        )
