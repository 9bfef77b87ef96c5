"""A typed function as a verb of the command line: signature as syntax, docstring as help.

Parameters before the ``*`` become positional arguments (a list takes one or more), the others
options; an underscore at the end of a name, where Python keeps the word for itself, is left out.
A parameter named ``settings`` takes a `Config`, whose fields become dotted options and whose values
can also come from a file by ``--config``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import tomllib
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError, UserError
from bertsmith.core.json_files import parse_json
from bertsmith.core.output import print_line

if typing.TYPE_CHECKING:
    from jsonargparse import ArgumentParser


_LARGEST_CONFIG = 2**20
_CONFIG = 'write TOML (clip = 1.0) in a .toml file, JSON ({"clip": 1.0}) in any other'


@dataclass(frozen=True, kw_only=True)
class Short:
    """A short option for a setting, given by its path; `several` has commas between its values."""

    setting: str
    several: bool = False


@dataclass(frozen=True, kw_only=True)
class Verb:
    """Something the command line can do; `settings` imports its class when the verb is used.

    `defaults` makes of the arguments given the settings that others are changes to; without it
    they are those of the class. `short` has settings that users need often, by their options.
    """

    function: Callable[..., object]
    examples: tuple[str, ...]
    settings: Callable[[], type[Config]] | None = None
    defaults: Callable[[Mapping[str, Any]], Config] | None = None
    short: Mapping[str, Short] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]


def read_arguments(name: str, verb: Verb, arguments: Sequence[str]) -> dict[str, Any]:
    """The keyword arguments for the verb's function; `ConfigError` when they do not fit.

    Prints the verb's help and raises `SystemExit` when that is asked for.
    """
    parser = _parser(name, verb)
    _check_paths(name, verb, parser, arguments)
    if not {"-h", "--help"}.isdisjoint(arguments):
        if verb.defaults is not None:
            _show_defaults(parser, verb, arguments)
        # not by the parser, which would pass over an output that cannot be written
        for line in parser.format_help().removesuffix("\n").split("\n"):
            print_line(line)
        raise SystemExit(0)
    try:
        given = parser.parse_args(_spelled(parser, verb, arguments), defaults=False)
    except argparse.ArgumentError as error:
        what = _plain_message(str(error), verb)
        raise ConfigError(what, remedy=f"see: bertsmith {name} --help") from error
    values = vars(given.as_flat())
    file = values.pop("config", None)
    known = inspect.signature(verb.function).parameters
    overrides = {key: _plain(values.pop(key)) for key in set(values) - set(known)}
    # without defaults, a positional left out comes as None all the same
    values = {key: value for key, value in values.items() if value is not None}
    if verb.settings is not None and (file is not None or overrides):
        defaults = verb.defaults(values) if verb.defaults else verb.settings()()
        values["settings"] = _settings(defaults, file, overrides)
    return values


def _check_paths(name: str, verb: Verb, parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Raise `ConfigError` for an empty path, which would be that of the working folder."""
    actions = parser._option_string_actions
    hints = typing.get_type_hints(verb.function)
    before = ""
    for argument in arguments:
        option, sign, value = argument.partition("=")
        if option not in actions or not sign:
            option, value = before, argument
        action = actions.get(option)
        hint = None if action is None else hints.get(action.dest)
        takes_path = action is None or hint is Path or Path in typing.get_args(hint)
        if not value.strip() and takes_path:
            shown = "a path" if action is None else option
            remedy = f"name a file or a folder; see: bertsmith {name} --help"
            raise ConfigError(f"{shown} is empty", remedy=remedy)
        before = argument


def _show_defaults(parser: ArgumentParser, verb: Verb, arguments: Sequence[str]) -> None:
    """Let the help show the settings that the other arguments lead to."""
    assert verb.defaults is not None
    required = [action for action in parser._actions if action.required]
    others = [each for each in arguments if each not in ("-h", "--help")]
    try:
        for action in required:
            action.required = False
        given = vars(parser.parse_args(_spelled(parser, verb, others), defaults=False).as_flat())
        settings = verb.defaults({k: v for k, v in given.items() if v is not None})
        parser.set_defaults(_flat(settings.to_dict()))
    except (argparse.ArgumentError, UserError):
        return  # help is shown whatever else is wrong
    finally:
        for action in required:
            action.required = True


def _spelled(parser: ArgumentParser, verb: Verb, arguments: Sequence[str]) -> list[str]:
    """Return the arguments as the parser wants them.

    Options may have dashes for underscores, and some take values with commas between.
    """
    known = parser._option_string_actions
    several = {option for option, short in verb.short.items() if short.several}
    spelled: list[str] = []
    for argument in arguments:
        if spelled and spelled[-1] in several:
            spelled.append(_listed(argument))
            continue
        option, sign, value = argument.partition("=")
        alike = "--" + option.removeprefix("--").replace("-", "_")
        if option.startswith("--") and option not in known and alike in known:
            option = alike
        if sign and option in several:
            value = _listed(value)
        spelled.append(f"{option}{sign}{value}")
    return spelled


def _listed(value: str) -> str:
    """Return values with commas between as a JSON list."""
    return json.dumps([part.strip() for part in value.split(",") if part.strip()])


def _usage(name: str, verb: Verb) -> str:
    """One line: what must be given, the rest as options."""
    shown = [f"bertsmith {name}"]
    for parameter in inspect.signature(verb.function).parameters.values():
        word = parameter.name.upper()
        required = parameter.default is inspect.Parameter.empty
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            shown += [f"{_option(parameter.name)} {word}"] if required else []
        elif "list" in str(parameter.annotation):
            shown.append(f"{word} [{word} ...]")
        else:
            shown.append(word if required else f"[{word}]")
    return " ".join([*shown, "[options]"])


def _plain(value: Any) -> Any:  # noqa: ANN401
    """A value of an option, with the settings inside a list as `Config` wants them."""
    if isinstance(value, argparse.Namespace):
        return {key: _plain(each) for key, each in vars(value).items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def help_page(verbs: Mapping[str, Verb], description: str) -> str:
    """Return what ``bertsmith --help`` prints."""
    width = max(map(len, verbs))
    lines = [description, "", "usage: bertsmith VERB ...", "", "verbs:"]
    lines += [f"  {name:<{width}}  {verb.summary}" for name, verb in verbs.items()]
    lines += ["", "examples:"]
    lines += [f"  bertsmith {name} {verb.examples[0]}".rstrip() for name, verb in verbs.items()]
    lines += [
        "",
        "bertsmith VERB --help tells the options of a verb; bertsmith --version the version.",
    ]
    return "\n".join(lines)


def _parser(name: str, verb: Verb) -> ArgumentParser:
    import docstring_parser
    import jsonargparse

    class Help(argparse.RawDescriptionHelpFormatter, jsonargparse.DefaultHelpFormatter):
        """Defaults in the help, but no types: the names and examples say those."""

        def _get_help_string(self, action: argparse.Action) -> str:
            if action.required and action.option_strings:
                return f"{action.help} (required)"
            # a default of 0 is worth saying, that of a flag is not
            shown = not any(action.default is no for no in (None, False, argparse.SUPPRESS))
            return (action.help or "") + (" (default: %(default)s)" if shown else "")

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    documentation = docstring_parser.parse(inspect.getdoc(verb.function) or "")
    parser = jsonargparse.ArgumentParser(
        prog=f"bertsmith {name}",
        usage=_usage(name, verb),
        description=documentation.description or "",
        epilog="\n".join(
            ["examples:", *(f"  bertsmith {name} {e}".rstrip() for e in verb.examples)]
        ),
        formatter_class=Help,
        exit_on_error=False,
        allow_abbrev=False,
    )
    explained = {one.arg_name: one.description for one in documentation.params}
    hints = typing.get_type_hints(verb.function)
    for parameter in inspect.signature(verb.function).parameters.values():
        if parameter.name != "settings":
            _add(parser, parameter, hints[parameter.name], explained.get(parameter.name) or "")
    if verb.settings is not None:
        parser.add_argument("--config", type=Path, help="TOML or JSON file of the settings below")
        parser.add_class_arguments(verb.settings(), as_group=True)
    for option, short in verb.short.items():
        action = next(each for each in parser._actions if each.dest == short.setting)
        parser._option_string_actions[option] = action
        action.option_strings = [option]
    return parser


def _add(
    parser: ArgumentParser,
    parameter: inspect.Parameter,
    hint: Any,  # noqa: ANN401
    explanation: str,
) -> None:
    """Add the argument for one parameter."""
    required = parameter.default is inspect.Parameter.empty
    several = typing.get_origin(hint) is list
    settings: dict[str, Any] = {"help": explanation}
    if not required:
        settings["default"] = parameter.default
    if hint is bool:
        settings["action"] = "store_true"
    else:
        settings["type"] = typing.get_args(hint)[0] if several else hint
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        if required:
            settings["required"] = True
        if parameter.name.endswith("_"):
            settings["metavar"] = parameter.name.removesuffix("_").upper()
        parser.add_argument(_option(parameter.name), dest=parameter.name, **settings)
    else:
        settings["metavar"] = parameter.name.upper()
        if several or not required:
            settings["nargs"] = "+" if several else "?"
        parser.add_argument(parameter.name, **settings)


def _plain_message(message: str, verb: Verb) -> str:
    """Return the parser's complaint in the user's terms."""
    parameters = inspect.signature(verb.function).parameters
    missing = "the following arguments are required: "
    if message.startswith(missing):
        names = message.removeprefix(missing).split(", ")
        options = [n for n in names if parameters[n].kind is inspect.Parameter.KEYWORD_ONLY]
        return "missing: " + ", ".join(_option(n) if n in options else n.upper() for n in names)
    found = re.match(r'Parser key "([^"]+)":.*value: ([^\n]*)', message, re.DOTALL)
    if found is None:
        return message
    name = _option(found[1]) if found[1] in parameters else f"--{found[1]}"
    expected = re.findall(r"Expected a (.+?)(?:\. Got|$)", message, re.MULTILINE)
    kinds = [_plain_kind(kind) for kind in expected if "None" not in kind]
    return f"{name} is {found[2]!r}, not {' or '.join(dict.fromkeys(kinds))}"


def _plain_kind(kind: str) -> str:
    """A type as the parser prints it, in words."""
    if "Literal[" in kind:
        return "one of " + ", ".join(re.findall(r"'([^']*)'", kind))
    name = kind.removeprefix("<class '").removesuffix("'>")
    return {"int": "a whole number", "float": "a number", "bool": "true or false"}.get(name, name)


def _option(name: str) -> str:
    return "--" + name.removesuffix("_").replace("_", "-")


def _settings(settings: Config, file: Path | None, overrides: dict[str, Any]) -> Config:
    """The settings: defaults, below a file's values, below the options given."""
    if file is not None:
        try:
            settings = settings.override(**_flat(_read(file)))
        except ConfigError as error:
            raise ConfigError(
                error.what, where=error.where or file, line=error.line, remedy=error.remedy
            ) from error
    return settings.override(**overrides)


def _read(file: Path) -> dict[str, Any]:
    """The values in a TOML or JSON file."""
    try:
        with file.open("rb") as stream:
            # a pipe is welcome, a device without an end is not
            content = stream.read(_LARGEST_CONFIG + 1)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise ConfigError(what, where=file, remedy="check the path") from error
    if len(content) > _LARGEST_CONFIG:
        raise ConfigError("is over 1 MiB", where=file, remedy="name a file of settings")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
        values = tomllib.loads(text) if file.suffix == ".toml" else parse_json(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r" \(at line (\d+).*\)$", str(error))
        what = "not TOML: " + str(error).removesuffix(at[0] if at else "")
        line = int(at[1]) if at else None
        raise ConfigError(what, where=file, line=line, remedy=_CONFIG) from error
    except json.JSONDecodeError as error:
        what, remedy = f"not JSON: {error.msg}", _CONFIG
        raise ConfigError(what, where=file, line=error.lineno, remedy=remedy) from error
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8", where=file, remedy="save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        # numbers of thousands of digits, thousands of levels
        raise ConfigError(f"cannot be read: {error}", where=file, remedy=_CONFIG) from error
    if not isinstance(values, dict):
        raise ConfigError("holds no JSON object", where=file, remedy=_CONFIG)
    return values


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested groups as dotted paths."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
