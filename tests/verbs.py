"""Every verb as a function of keywords, as the Python API makes some of the table of commands."""

from __future__ import annotations

from typing import Any

from bertsmith.cli.commands import COMMANDS
from bertsmith.core.keywords import python_function

_RUNS = {command.run.__name__: command for command in COMMANDS.values()}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Return the function of a verb."""
    if name not in _RUNS:
        raise AttributeError(name)
    command = _RUNS[name]
    return python_function(name, command.config, command.run, command.defaults)
