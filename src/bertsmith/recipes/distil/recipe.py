"""Distillation, from a store or on labelled examples.

bertsmith distil TEACHER STORE --student 4/312 --method minilm --minutes 60 --out run
bertsmith distil run/model train.csv --student 3/384 --out small
"""

from __future__ import annotations

from bertsmith.core.clock import Clock
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.recipes.distil.config import DistilConfig
from bertsmith.recipes.distil.task import distil_task
from bertsmith.store.store import INDEX


def distil(config: DistilConfig, *, clock: Clock | None = None) -> object:
    """Teach a student, from a store where `data` is one, otherwise a task.

    Raises `UserError` children, and `Interrupted` with everything saved.
    """
    if not config.data.exists():
        raise ExampleError("no such file or folder", where=config.data)
    if (config.data / INDEX).is_file():
        raise ConfigError("not yet")
    for name, value in (("--minutes", config.minutes), ("--steps", config.steps)):
        if value is not None:
            raise ConfigError(
                f"{name} is for a store, and {config.data} holds labelled examples",
                remedy="leave it out, or give --epochs",
            )
    return distil_task(config)
