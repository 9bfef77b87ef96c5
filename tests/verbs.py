"""Every verb as a function of keywords, as the Python API makes some; and commands of fakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bertsmith.cli.command import Command, Verb
from bertsmith.cli.commands import COMMANDS
from bertsmith.core.config import Config
from bertsmith.core.keywords import python_function
from bertsmith.core.options import Defaults, no_defaults

_RUNS = {command.load.__name__: command for command in COMMANDS.values()}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Return the function of a verb."""
    if name not in _RUNS:
        raise AttributeError(name)
    command = _RUNS[name]
    return python_function(
        name, command.config, command.run, command.defaults, description=command.description
    )


def command_of(
    config: type[Config],
    run: Callable[[Any], object],
    examples: tuple[str, ...] = ("",),
    defaults: Defaults = no_defaults,
) -> Command:
    """Return a command of a config and a function, whose docstring describes it."""

    def load() -> Verb:
        return Verb(config, lambda: run, defaults)

    load.__doc__ = run.__doc__
    return Command(load, examples=examples)
