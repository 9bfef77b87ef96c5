"""Completion scripts for shells, made by shtab from the table of verbs.

A script holds all verbs, options and choices, so that completing starts no Python.
"""

from __future__ import annotations

import argparse
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.cli.command import CONFIG, Command, add_options, new_parser
from bertsmith.core.config import POSITIONAL, Config
from bertsmith.core.options import options_of

Shell = Literal["bash", "zsh", "fish"]


@dataclass(frozen=True, kw_only=True)
class CompletionConfig(Config):
    """The options of printing a completion script."""

    shell: Shell = field(metadata=POSITIONAL)
    """bash, zsh or fish."""


def completion_script(shell: Shell, commands: Mapping[str, Command]) -> str:
    """Return the script that a shell evaluates to complete `bertsmith`."""
    import shtab

    program = new_parser(prog="bertsmith")
    program.add_argument("--version", action="store_true", help="print the version and stop")
    verbs = program.add_subparsers()
    groups: dict[str, argparse._SubParsersAction[argparse.ArgumentParser]] = {}
    for name, command in commands.items():
        first, *second = name.split()
        if second and first not in groups:
            groups[first] = verbs.add_parser(first, help=f"{first} ...").add_subparsers()
        place = groups[first] if second else verbs
        parser = place.add_parser(name.split()[-1], help=command.summary, prog=f"bertsmith {name}")
        options = options_of(command.config)
        actions = add_options(parser, options.values())
        for each, option in options.items():
            # fish takes signs for syntax
            words = [word for word in option.choices if re.fullmatch(r"[\w+-]+", word)]
            actions[each].choices = words or None
            # one sentence has room beside an option
            actions[each].help = option.explanation.partition(". ")[0].removesuffix(".")
            if Path in (option.hint, *typing.get_args(option.hint)):
                actions[each].complete = shtab.FILE  # type: ignore[attr-defined]
        actions[CONFIG].complete = shtab.FILE  # type: ignore[attr-defined]
    script: str = shtab.complete(program, shell)
    return script
