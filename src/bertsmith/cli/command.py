"""A config and a function as a verb of the command line.

The options of the config (core/options.py) are the syntax: `POSITIONAL` ones in their order, the
others by name, ``--name VALUE`` or ``--name=VALUE``. Several values have commas between; a switch
has none, and ``--no-name`` turns it off. The function's docstring is the description in the help.
"""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.cli.config_files import config_lines, locate, parse_yaml, read_config
from bertsmith.core.config import Config, described_type
from bertsmith.core.errors import ConfigError, UserError
from bertsmith.core.options import (
    REQUIRED,
    Defaults,
    Option,
    configured,
    effective_values,
    missing_options,
    nested_values,
    no_defaults,
    options_of,
    unknown_option,
)
from bertsmith.core.output import print_line

CONFIG, PRINT_CONFIG, HELP = "config", "print-config", "help"
_COLUMN = 24
"""Column of the explanations in the help."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Something the command line can do: `run` of the config that the arguments make."""

    config: type[Config]
    run: Callable[[Any], object]
    examples: tuple[str, ...]
    defaults: Defaults = no_defaults

    @property
    def description(self) -> str:
        """The docstring of the function."""
        return inspect.getdoc(self.run) or ""

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.description.partition("\n")[0]


def read_arguments(name: str, command: Command, arguments: Sequence[str]) -> Config:
    """Return the config that arguments make; raises `ConfigError` when they do not fit.

    Prints the help or the config and raises `SystemExit` when that is asked for.
    """
    if not {"-h", f"--{HELP}"}.isdisjoint(arguments):
        _print_help(name, command, arguments)
        raise SystemExit(0)
    asked = _split(name, command, arguments)
    options = options_of(command.config)
    given = {each: typed_text(text, options[each]) for each, text in asked.values.items()}
    if asked.file is not None:
        given = read_config(asked.file, command.config) | given
    missing = missing_options(command.config, given)
    if asked.print_config and missing:
        data = nested_values(command.config, given)
    elif missing:
        shown = ", ".join(option.shown for option in missing)
        raise ConfigError(f"missing: {shown}", remedy=f"see: bertsmith {name} --help")
    else:
        try:
            config = configured(command.config, given, defaults=command.defaults)
        except ConfigError as error:
            raise error if asked.file is None else locate(error, asked.file, asked.values) from None
        data = config.to_dict()
    if not asked.print_config:
        return config
    values = effective_values(command.config, data, command.defaults)
    for line in config_lines(missing, values).split("\n"):
        print_line(line)
    raise SystemExit(0)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The texts of options, the config file, and whether the config is to be printed."""

    values: dict[str, str | list[str] | bool]
    file: Path | None
    print_config: bool


def _split(name: str, command: Command, arguments: Sequence[str]) -> _Asked:
    """Take arguments apart into options and their texts."""
    options = options_of(command.config)
    known = {each: option for each, option in options.items() if not option.positional}
    values: dict[str, str | list[str] | bool] = {}
    places, rest = [], list(arguments)
    file, print_config = None, False
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            places += rest
            break
        if not re.match(r"--?[A-Za-z]", argument):
            places.append(argument)
            continue
        flag, sign, value = argument.partition("=")
        own = flag.removeprefix("--")
        switched = own.removeprefix("no-") if own not in known else own
        if own == PRINT_CONFIG:
            print_config = True
        elif switched in known and _is_switch(known[switched]):
            if sign:
                raise _misuse(name, f"{flag} takes no value")
            values[switched] = switched == own
        elif own not in (*known, CONFIG) or not flag.startswith("--"):
            names = (*known, CONFIG, PRINT_CONFIG)
            raise unknown_option(flag, {each: f"--{each}" for each in names})
        elif not sign and (not rest or _is_flag(rest[0], known)):
            raise _misuse(name, f"{flag} has no value")
        else:
            value = value if sign else rest.pop(0)
            if own == CONFIG:
                file = Path(value)
            else:
                values[own] = value
    return _Asked(
        values=_placed(name, options, places) | values, file=file, print_config=print_config
    )


def _is_flag(argument: str, known: Collection[str]) -> bool:
    """Return whether an argument is an option, and no value of the one before it."""
    flag, dashes, name = argument.partition("=")[0].partition("--")
    return bool(dashes) and not flag and name.removeprefix("no-") in known


def _is_switch(option: Option) -> bool:
    return option.hint is bool


def _misuse(name: str, what: str) -> ConfigError:
    return ConfigError(what, remedy=f"see: bertsmith {name} --help")


def _placed(
    name: str, options: Mapping[str, Option], places: list[str]
) -> dict[str, str | list[str] | bool]:
    """Return the texts of positional options; one that is a list takes all that are left."""
    found: dict[str, str | list[str] | bool] = {}
    for option in options.values():
        if option.positional and places:
            several = typing.get_origin(option.hint) is tuple
            found[option.name] = places[:] if several else places[0]
            places = [] if several else places[1:]
    if places:
        raise _misuse(name, f"there is no place for {places[0]!r}")
    return found


def typed_text(text: str | list[str] | bool, option: Option) -> Any:  # noqa: ANN401
    """Return the value of an option that a text stands for; raises `ConfigError`."""
    if isinstance(text, bool):
        return text
    if isinstance(text, list):
        (hint, *_) = typing.get_args(option.hint)
        return tuple(_value(each, hint, option) for each in text)
    return _value(text, option.hint, option)


def _value(text: str, hint: Any, option: Option) -> Any:  # noqa: ANN401
    """Return the value of a type that a text stands for."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        if text.lstrip().startswith("["):
            try:
                return parse_yaml(text)
            except (ConfigError, ValueError, RecursionError):
                raise _wrong(text, option) from None
        parts = [part.strip() for part in text.split(",")]
        return tuple(_value(part, arguments[0], option) for part in parts if part)
    if hint is Path and not text.strip():
        raise ConfigError(f"{option.shown} is empty", remedy="name a file or a folder")
    if origin is None and hint is not bool and not issubclass(hint, Config):
        with suppress(ValueError):
            return hint(text)
    elif hint is bool and text in ("true", "false"):
        return text == "true"
    if text == "null" and type(None) in arguments:
        return None
    for each in arguments:
        if origin is typing.Literal:
            if str(each) == text:
                return each
        elif each is not type(None):
            with suppress(ConfigError):
                return _value(text, each, option)
    raise _wrong(text, option)


def _wrong(text: str, option: Option) -> ConfigError:
    what = f"{option.shown} is {text!r}"
    return ConfigError(what, remedy=f"it must be {described_type(option.hint)}")


def _print_help(name: str, command: Command, arguments: Sequence[str]) -> None:
    """Print the help, with the defaults that the other arguments lead to."""
    others = [each for each in arguments if each not in ("-h", f"--{HELP}")]
    defaults: dict[str, Any] = {}
    try:
        asked = _split(name, command, others)
        options = options_of(command.config)
        given = {each: typed_text(text, options[each]) for each, text in asked.values.items()}
        if asked.file is not None:
            given = read_config(asked.file, command.config) | given
        data = nested_values(command.config, given)
        defaults = effective_values(command.config, data, command.defaults)
        for each in given:
            defaults.pop(each, None)
    except UserError:
        pass  # help is shown whatever else is wrong
    for line in help_of(name, command, defaults):
        print_line(line)


def help_page(commands: Mapping[str, Any], description: str) -> str:
    """Return what ``bertsmith --help`` prints."""
    width = max(map(len, commands))
    lines = [description, "", "usage: bertsmith VERB ...", "", "verbs:"]
    lines += [f"  {name:<{width}}  {command.summary}" for name, command in commands.items()]
    lines += ["", "examples:"]
    lines += [
        f"  bertsmith {name} {command.examples[0]}".rstrip() for name, command in commands.items()
    ]
    lines += [
        "",
        "bertsmith VERB --help shows the options of a verb; bertsmith --version the version.",
    ]
    return "\n".join(lines)


def help_of(name: str, command: Command, defaults: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a verb's help, with these defaults by the names of options."""
    options = list(options_of(command.config).values())
    yield f"usage: {' '.join(_usage(name, options))}"
    yield from ("", *command.description.split("\n"))
    if places := [option for option in options if option.positional]:
        yield from ("", "positional arguments:")
        for option in places:
            yield from _entry(option.shown, option.explanation)
    yield from ("", "options:")
    yield from _entry("-h, --help", "show this help and stop")
    for option in options:
        if option.group is command.config and not option.positional:
            yield from _option(option, defaults)
    yield from _entry("--config FILE", "YAML, TOML or JSON file of options by name")
    yield from _entry("--print-config", "print all options as YAML for --config, and stop")
    groups = dict.fromkeys(option.group for option in options)
    groups.pop(command.config, None)
    for group in groups:
        yield from ("", f"{_title(group)}:")
        for option in options:
            if option.group is group:
                yield from _option(option, defaults)
    yield from (
        "",
        "examples:",
        *(f"  bertsmith {name} {each}".rstrip() for each in command.examples),
    )


def _usage(name: str, options: list[Option]) -> Iterator[str]:
    """Yield what must be given, the rest as options."""
    yield f"bertsmith {name}"
    for option in options:
        required, word = option.default is REQUIRED, option.name.upper()
        if option.positional and typing.get_origin(option.hint) is tuple:
            yield f"{word} [{word} ...]"
        elif option.positional:
            yield word if required else f"[{word}]"
        elif required:
            yield f"{option.shown} {word}"
    yield "[options]"


def _title(group: type[Config]) -> str:
    return (group.__doc__ or "").partition("\n")[0].rstrip(".")


def _option(option: Option, defaults: Mapping[str, Any]) -> Iterator[str]:
    default = defaults.get(option.name, option.default)
    note = f" (default: {_shown(default)})"
    if option.hint is bool:
        flag = f"{option.shown}, --no-{option.name}" if default is True else option.shown
        yield from _entry(flag, option.explanation)
        return
    if option.default is REQUIRED:
        note = " (required)"
    elif default in (None, "", (), []):
        note = ""
    yield from _entry(f"{option.shown} {_metavar(option)}", option.explanation + note)


def _shown(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, list | tuple):
        return ",".join(map(_shown, value))
    # a group, as YAML
    return str(value).replace("'", "") if isinstance(value, dict) else str(value)


def _metavar(option: Option) -> str:
    kinds = [option.hint, *typing.get_args(option.hint)]
    choices = next((kind for kind in kinds if typing.get_origin(kind) is typing.Literal), None)
    if choices is not None and not {int, float, str} & set(kinds):
        return "{" + ",".join(map(str, typing.get_args(choices))) + "}"
    if bool in kinds:
        return "{true,false}"
    word = option.name.rpartition(".")[2].upper()
    return f"{word},..." if typing.get_origin(option.hint) is tuple else word


def _entry(flag: str, explanation: str) -> Iterator[str]:
    """Yield the lines of an option and its explanation, which begins in a column of its own."""
    width = max(40, shutil.get_terminal_size().columns - 2)
    lines = textwrap.wrap(explanation, width - _COLUMN, break_on_hyphens=False)
    if len(flag) + 4 > _COLUMN or not lines:
        yield f"  {flag}"
    else:
        yield f"  {flag:<{_COLUMN - 2}}{lines.pop(0)}"
    yield from (" " * _COLUMN + line for line in lines)
