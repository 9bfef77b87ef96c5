"""A config and a function as a verb of the command line.

The options of the config (core/options.py) are the syntax: `POSITIONAL` ones in their order, the
others by name, ``--name VALUE`` or ``--name=VALUE``. Several values have commas between, or the
option before each; any other option may be given once, so that no value is dropped silently. A
switch has no value, and ``--no-name`` turns it off. A verb's function (cli/verbs.py) is called when
its options are asked for: only then is the config imported. argparse takes the arguments apart and
lays out the help; a text gets its type here, since the errors of argparse are prose. shtab makes
completion scripts of the same parsers.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
import textwrap
import typing
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from bertsmith.cli.config_files import OptionsFile, config_lines, parse_yaml
from bertsmith.core.config import POSITIONAL, Config, described_type, typed_value
from bertsmith.core.errors import ConfigError, UserError
from bertsmith.core.options import (
    REQUIRED,
    Defaults,
    Option,
    configured,
    docstring,
    effective_values,
    missing_options,
    nested_values,
    no_defaults,
    options_of,
    unknown_option,
)
from bertsmith.core.output import print_line
from bertsmith.core.printable import shell_word

_CONFIG, _PRINT_CONFIG = "config", "print-config"

Shell = Literal["bash", "zsh", "fish"]


_Options = TypeVar("_Options", bound=Config)


class Verb:
    """A config, the recipe that runs with it, and the defaults that follow from other options."""

    def __init__(
        self,
        config: type[_Options],
        load: Callable[[], Callable[[_Options], object]],
        defaults: Defaults = no_defaults,
    ) -> None:
        """Join a config and a function that imports and returns the recipe of it."""
        self.config: type[Config] = config
        self.load: Callable[[], Callable[[Any], object]] = load
        self.defaults = defaults


@dataclass(frozen=True)
class Command:
    """An entry of the command line: a verb, imported when one of its parts is first used."""

    load: Callable[[], Verb]
    """A function that imports the verb's config; its docstring describes the verb."""
    examples: tuple[str, ...]

    @cached_property
    def _verb(self) -> Verb:
        return self.load()

    @property
    def config(self) -> type[Config]:
        """The config whose fields are the options."""
        return self._verb.config

    def run(self, config: Config) -> object:
        """Import the recipe and run it, whatever the caller has done to torch's state."""
        recipe = self.recipe()
        if "torch" not in sys.modules:
            return recipe(config)
        from bertsmith.network.torch_state import own_random_numbers, usual_torch_state

        with usual_torch_state(), own_random_numbers():
            return recipe(config)

    def recipe(self) -> Callable[[Any], object]:
        """Import the recipe."""
        with _without_collector():
            return self._verb.load()

    @property
    def defaults(self) -> Defaults:
        """Defaults that follow from other options."""
        return self._verb.defaults

    @property
    def description(self) -> str:
        """The description in the help."""
        return docstring(self.load)

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.description.partition("\n")[0]


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the collector of cycles.

    It takes about a fifth of the time of importing, going through all that was imported again and
    again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_arguments(name: str, command: Command, arguments: Sequence[str]) -> Config:
    """Return the config that arguments make; raises `ConfigError` when they do not fit.

    Prints the help or the config and raises `SystemExit` when an option asks for it.
    """
    if not {"-h", "--help"}.isdisjoint(arguments):
        _print_help(name, command, arguments)
        raise SystemExit(0)
    parsed = _parse_arguments(name, command, arguments)
    missing = missing_options(command.config, parsed.values)
    if parsed.print_config and missing:
        data = nested_values(command.config, parsed.values)
    elif missing:
        shown = ", ".join(option.shown for option in missing)
        raise ConfigError(f"missing: {shown}", remedy=f"see: bertsmith {name} --help")
    else:
        try:
            config = configured(command.config, parsed.values, defaults=command.defaults)
        except ConfigError as error:
            raise (
                error if parsed.file is None else parsed.file.locate(error, parsed.typed)
            ) from None
        data = config.to_dict()
    if not parsed.print_config:
        return config
    values = effective_values(command.config, data, command.defaults)
    for line in config_lines(missing, values).split("\n"):
        print_line(line)
    raise SystemExit(0)


@dataclass(frozen=True, kw_only=True)
class _ParsedArguments:
    """The values that arguments and their config file give."""

    values: Mapping[str, Any]
    """Values by the names of options."""
    typed: Collection[str]
    """Options that stand among the arguments."""
    file: OptionsFile | None
    print_config: bool


def _parse_arguments(name: str, command: Command, arguments: Sequence[str]) -> _ParsedArguments:
    """Return the values that arguments give; raises `ConfigError`."""
    options = options_of(command.config)
    # help was printed before; of what begins with -h argparse makes something else in each version
    parser = _new_parser(prog=f"bertsmith {name}", add_help=False)
    actions = _add_options(parser, (option for option in options.values() if not option.positional))
    end = arguments.index("--") if "--" in arguments else len(arguments)
    try:
        # positional arguments may stand between options: the parser leaves them over
        result, positional = parser.parse_known_args(arguments[:end])
    except argparse.ArgumentError as error:
        raise _misuse(name, error, actions, arguments) from error
    for flag in positional:
        if re.match(r"--?[A-Za-z]", flag):
            if os.path.lexists(flag):
                remedy = f"if the file of this name is meant: {shell_word(flag)}"
                raise ConfigError(f"there is no option {flag}", remedy=remedy)
            if flag.startswith("--help="):
                raise ConfigError("--help takes no value", remedy=f"see: bertsmith {name} --help")
            known = {action: f"--{action}" for action in (*actions, "help")}
            raise unknown_option(flag.partition("=")[0], known)
    texts = vars(result)
    named, print_config = texts.pop(_CONFIG, None), texts.pop(_PRINT_CONFIG, False)
    texts = _positional_values(name, options, [*positional, *arguments[end + 1 :]]) | texts
    values = {option: _parse_texts(text, options[option]) for option, text in texts.items()}
    file = None
    if named is not None:
        if not named.strip():
            raise ConfigError(f"--{_CONFIG} is empty", remedy="name a file")
        file = OptionsFile.read(Path(named), command.config)
        values = {**file.values, **values}
    return _ParsedArguments(values=values, typed=texts.keys(), file=file, print_config=print_config)


def _misuse(
    name: str,
    error: argparse.ArgumentError,
    actions: Mapping[str, argparse.Action],
    arguments: Sequence[str],
) -> ConfigError:
    """Return the error for an option that has no value, or one that it does not take."""
    flags = str(error.argument_name).split("/")
    flag = next(
        (candidate for candidate in flags if f"{candidate}=" in " ".join(arguments)), flags[0]
    )
    action = actions.get(flag.removeprefix("--"))
    if action is None or action.nargs == 0:
        return ConfigError(f"{flag} takes no value", remedy=f"see: bertsmith {name} --help")
    return ConfigError(f"{flag} has no value", remedy="give one, after = if it begins with a dash")


def _positional_values(
    name: str, options: Mapping[str, Option], texts: list[str]
) -> dict[str, str | list[str] | bool]:
    """Return the texts of positional options; one that is a list takes all that are left."""
    results: dict[str, str | list[str] | bool] = {}
    for option in options.values():
        if option.positional and texts:
            several = typing.get_origin(option.hint) is tuple
            results[option.name] = texts[:] if several else texts[0]
            texts = [] if several else texts[1:]
    if texts:
        problem = f"unexpected argument {texts[0]!r}"
        raise ConfigError(problem, remedy=f"see: bertsmith {name} --help")
    return results


def _parse_texts(text: str | list[str] | bool, option: Option) -> Any:  # noqa: ANN401
    """Return the value of an option that texts stand for; raises `ConfigError`."""
    if isinstance(text, bool):
        return text
    if isinstance(text, str):
        return _value(text, option.hint, option)
    if option.positional:
        return tuple(_item(part, option) for part in text)
    return tuple(item for part in text for item in _items(part, option))


def _items(text: str, option: Option) -> Iterable[Any]:
    """Return the items of a list that a text stands for, between commas or as YAML."""
    if not text.lstrip().startswith("["):
        items = [_item(part.strip(), option) for part in text.split(",") if part.strip()]
        if not items:
            remedy = "give values separated by commas, or leave it out"
            raise ConfigError(f"{option.shown} is empty", remedy=remedy)
        return items
    items = _parsed(text, option)
    if not isinstance(items, list):
        raise _type_error(text, option)
    return items


def _item(text: str, option: Option) -> Any:  # noqa: ANN401
    return _value(text, typing.get_args(option.hint)[0], option)


def _value(text: str, hint: Any, option: Option) -> Any:  # noqa: ANN401
    """Return the value of a type that a text stands for, as it is or as in a config file."""
    if hint is Path and not text.strip():
        raise ConfigError(f"{option.shown} is empty", remedy="name a file or a folder")
    null = text == "null"
    if not null or type(None) not in typing.get_args(hint):
        with suppress(ConfigError):
            return typed_value(text, hint, option.shown, None)
    # YAML writes infinity with a dot; an empty text, which is null to it, is a mistake
    value = _parsed(re.sub(r"^(-?)(inf)$", r"\1.\2", text), option)
    if value is not None or null:
        with suppress(ConfigError):
            return typed_value(value, hint, option.shown, None)
    raise _type_error(text, option)


def _parsed(text: str, option: Option) -> Any:  # noqa: ANN401
    try:
        return parse_yaml(text)
    except (ConfigError, ValueError, RecursionError):
        raise _type_error(text, option) from None


def _type_error(text: str, option: Option) -> ConfigError:
    problem = f"{option.shown} is {text!r}"
    return ConfigError(problem, remedy=f"it must be {described_type(option.hint)}")


def _print_help(name: str, command: Command, arguments: Sequence[str]) -> None:
    """Print the help, with the defaults that the other arguments lead to."""
    defaults: dict[str, Any] = {}
    # help is shown whatever else is wrong
    with suppress(UserError):
        other_arguments = [argument for argument in arguments if argument not in ("-h", "--help")]
        values = _parse_arguments(name, command, other_arguments).values
        data = nested_values(command.config, values)
        defaults = effective_values(command.config, data, command.defaults)
        for value in values:
            defaults.pop(value, None)
    options = options_of(command.config).values()
    examples = (f"  bertsmith {name} {example}".rstrip() for example in command.examples)
    parser = _new_parser(
        prog=f"bertsmith {name}",
        usage=" ".join(_usage(name, options)),
        description=command.description,
        epilog="\n".join(["examples:", *examples]),
    )
    actions = _add_options(parser, options)
    for option in options:
        note = _note(option, defaults.get(option.name, option.default))
        actions[option.name].help = _escaped(option.explanation + note)
    for line in parser.format_help().splitlines():
        print_line(line)


def help_page(commands: Mapping[str, Any], description: str) -> str:
    """Return the text of ``bertsmith --help``."""
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


@dataclass(frozen=True, kw_only=True)
class CompletionConfig(Config):
    """The options of printing a completion script."""

    shell: Shell = field(metadata=POSITIONAL)
    """bash, zsh or fish."""


def completion_script(shell: Shell, commands: Mapping[str, Command]) -> str:
    """Return the script that a shell evaluates to complete `bertsmith`.

    It holds all verbs, options and choices, so that completing starts no Python. It is in ASCII: a
    shell reads it in any encoding.
    """
    import shtab

    program = _new_parser(prog="bertsmith")
    program.add_argument("--version", action="store_true", help="print the version and stop")
    verbs = program.add_subparsers()
    groups: dict[str, argparse._SubParsersAction[argparse.ArgumentParser]] = {}
    for name, command in commands.items():
        first, *second = name.split()
        if second and first not in groups:
            groups[first] = verbs.add_parser(first, help=f"{first} ...").add_subparsers()
        group = groups[first] if second else verbs
        # argparse formats help, from Python 3.14 as soon as it is given; shells show descriptions
        parser = group.add_parser(
            name.split()[-1],
            help=_escaped(command.summary),
            description=command.summary,
            prog=f"bertsmith {name}",
        )
        options = options_of(command.config)
        actions = _add_options(parser, options.values())
        for option_name, option in options.items():
            # fish takes signs for syntax
            words = [word for word in option.choices if re.fullmatch(r"[\w+-]+", word)]
            actions[option_name].choices = words or None
            # one sentence has room beside an option
            sentence = option.explanation.partition(". ")[0].removesuffix(".")
            actions[option_name].help = _escaped(sentence)
            if Path in (option.hint, *typing.get_args(option.hint)):
                actions[option_name].complete = shtab.FILE  # type: ignore[attr-defined]
        actions[_CONFIG].complete = shtab.FILE  # type: ignore[attr-defined]
    script: str = shtab.complete(program, shell)
    return unicodedata.normalize("NFKD", script).encode("ascii", "ignore").decode()


def _escaped(text: str) -> str:
    """Return a help text that argparse's formatting turns into `text`."""
    return text.replace("%", "%%")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that keeps the lines of a description, and names of options whole."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class _SingleUseAction(argparse.Action):
    """An option that may be given once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Keep the value; raises `ConfigError` where there is one already."""
        if hasattr(namespace, self.dest):
            raise _repeated_option(str(option_string), str(option_string))
        setattr(namespace, self.dest, values)


class _SwitchAction(argparse.BooleanOptionalAction):
    """A switch that is turned on or off once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Turn it on or off; raises `ConfigError` where it has been."""
        if hasattr(namespace, self.dest):
            on, off = self.option_strings
            before = on if getattr(namespace, self.dest) else off
            raise _repeated_option(before, str(option_string))
        super().__call__(parser, namespace, values, option_string)


def _repeated_option(one: str, other: str) -> ConfigError:
    problem = f"{one} is given twice" if one == other else f"{one} and {other} are both given"
    return ConfigError(problem, remedy="leave one of them out")


def _new_parser(*, add_help: bool = True, **texts: str) -> argparse.ArgumentParser:
    """Return a parser without options but help, which raises `argparse.ArgumentError`."""
    return argparse.ArgumentParser(
        **texts,  # type: ignore[arg-type]
        add_help=add_help,
        formatter_class=_Formatter,
        allow_abbrev=False,
        exit_on_error=False,
        argument_default=argparse.SUPPRESS,
    )


def _add_options(
    parser: argparse.ArgumentParser, options: Iterable[Option]
) -> dict[str, argparse.Action]:
    """Add the options of a config to a parser and return its actions by their names.

    They have no help yet: reading arguments needs none, and it takes time to find.
    """
    added: dict[str, argparse.Action] = {}
    groups: dict[type[Config], argparse._ArgumentGroup] = {}
    for option in options:
        group: argparse._ActionsContainer = parser
        if len(option.path) > 1 and not option.positional:
            if option.group not in groups:
                title = docstring(option.group).partition("\n")[0].rstrip(".")
                groups[option.group] = parser.add_argument_group(title)
            group = groups[option.group]
        several = typing.get_origin(option.hint) is tuple
        settings: dict[str, Any] = {"dest": option.name, "metavar": _metavar(option)}
        settings["action"] = "append" if several else _SingleUseAction
        if option.positional:
            settings = {"metavar": option.shown, "nargs": "+" if several else "?"}
        elif option.hint is bool:
            settings = {"dest": option.name, "action": _SwitchAction}
        flag = option.name if option.positional else option.shown
        added[option.name] = group.add_argument(flag, **settings)
    added[_CONFIG] = parser.add_argument(
        f"--{_CONFIG}",
        metavar="FILE",
        action=_SingleUseAction,
        help="file with options, in YAML, TOML or JSON",
    )
    about = "print all options in YAML, for --config, and stop"
    added[_PRINT_CONFIG] = parser.add_argument(
        f"--{_PRINT_CONFIG}", dest=_PRINT_CONFIG, action="store_true", help=about
    )
    return added


def _usage(name: str, options: Iterable[Option]) -> Iterator[str]:
    """Yield the arguments that must be given, the rest as options."""
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


def _note(option: Option, default: Any) -> str:  # noqa: ANN401
    """Return the note on an option's default in the help."""
    if option.default is REQUIRED:
        return "" if option.positional else " (required)"
    if option.positional or default is False or default in (None, "", (), []):
        return ""
    return f" (default: {_format_default(default)})"


def _format_default(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_format_default, value))
    # a group, as YAML
    return str(value).replace("'", "") if isinstance(value, dict) else str(value)


def _metavar(option: Option) -> str:
    if words := option.choices:
        kinds = {option.hint, *typing.get_args(option.hint)}
        if not {int, float, str} & kinds:
            return "{" + ",".join(words) + "}"
    word = option.name.rpartition(".")[2].upper()
    return f"{word},..." if typing.get_origin(option.hint) is tuple else word
