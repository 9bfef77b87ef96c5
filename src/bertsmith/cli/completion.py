"""Completion scripts for shells, made from the table of verbs.

A script holds all verbs, options and choices, so that completing starts no Python.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from bertsmith.cli.command import CONFIG, PRINT_CONFIG, Command, choices_of
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
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)
    return "\n".join(lines)


def _flags(command: Command) -> list[str]:
    own = (option.shown for option in options_of(command.config).values() if not option.positional)
    return [*own, f"--{CONFIG}", f"--{PRINT_CONFIG}", "--help"]


def _groups(commands: Mapping[str, Command]) -> dict[str, list[str]]:
    """Return the second words of verbs by the first; none of a verb of one word."""
    groups: dict[str, list[str]] = {}
    for name in commands:
        first, *second = name.split()
        groups.setdefault(first, []).extend(second)
    return groups


def _bash(commands: Mapping[str, Command]) -> Iterator[str]:
    groups = _groups(commands)
    yield "# bash completion of bertsmith: source <(bertsmith completion bash)"
    yield "_bertsmith() {"
    yield '    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=""'
    yield "    local verb=${COMP_WORDS[1]}"
    yield "    case $COMP_CWORD,$verb in"
    yield f'        1,*) words="{" ".join(groups)} --help --version" ;;'
    for first, second in groups.items():
        if second:
            yield f'        2,{first}) words="{" ".join(second)}" ;;'
    yield "    esac"
    several = "|".join(first for first, second in groups.items() if second)
    yield "    case $verb in"
    yield f'        {several}) verb="$verb ${{COMP_WORDS[2]}}" ;;'
    yield "    esac"
    yield '    if [[ -z $words ]]; then case "$verb $before" in'
    for name, command in commands.items():
        for option in options_of(command.config).values():
            if (words := choices_of(option)) and not option.positional:
                quoted = shlex.quote(" ".join(words))
                yield f"        {shlex.quote(f'{name} {option.shown}')}) words={quoted} ;;"
    yield "    esac; fi"
    yield '    if [[ -z $words && $current == -* ]]; then case "$verb" in'
    for name, command in commands.items():
        yield f'        {shlex.quote(name)}) words="{" ".join(_flags(command))}" ;;'
    yield "    esac; fi"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _bertsmith bertsmith"


def _zsh(commands: Mapping[str, Command]) -> Iterator[str]:
    yield "#compdef bertsmith"
    yield "autoload -U +X compinit && compinit"
    yield "autoload -U +X bashcompinit && bashcompinit"
    yield from _bash(commands)


def _fish(commands: Mapping[str, Command]) -> Iterator[str]:
    yield "# fish completion of bertsmith: bertsmith completion fish | source"
    for first, second in _groups(commands).items():
        summary = "" if second else commands[first].summary
        yield _fish_line("__fish_use_subcommand", f"-f -a {first}", summary)
        if second:
            test = f"__fish_seen_subcommand_from {first}"
            test += f"; and not __fish_seen_subcommand_from {' '.join(second)}"
            yield _fish_line(test, f"-f -a {shlex.quote(' '.join(second))}", "")
    for name, command in commands.items():
        test = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        for option in options_of(command.config).values():
            if not option.positional:
                words = " ".join(choices_of(option))
                value = f"-x -a {shlex.quote(words)}" if words else "-r"
                value = "" if option.hint is bool else value
                yield _fish_line(test, f"-l {option.name} {value}".rstrip(), option.explanation)
        yield _fish_line(test, f"-l {CONFIG} -r", "YAML, TOML or JSON file of options by name")
        yield _fish_line(test, f"-l {PRINT_CONFIG}", "print all options as YAML, and stop")


def _fish_line(test: str, rest: str, explanation: str) -> str:
    line = f"complete -c bertsmith -n {shlex.quote(test)} {rest}"
    # one sentence has room beside an option
    first = explanation.partition(". ")[0].removesuffix(".").replace("\\", "").replace("'", "")
    return f"{line} -d '{first}'" if first else line
