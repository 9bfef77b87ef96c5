"""Files of options: YAML, TOML or JSON, and the YAML that `--print-config` writes.

Keys are the names of options, without their dashes in front; groups are nested, or have dots.
YAML is read much as by the core schema of its version 1.2, in which ``no`` is a word and 1e-5 a
number; ``01``, ``0x10`` and ``True`` are words too. There are no aliases, which can make a short
file an endless one.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.core.files import RepeatedName, json_problem, parse_json, unreadable
from bertsmith.core.options import Option, flat, groups_of, nested_values
from bertsmith.core.output import prints_exactly

_MAX_BYTES = 2**20
_REMEDY = "write YAML (epochs: 2), or TOML in a .toml file, JSON in a .json file"


@dataclass(frozen=True, kw_only=True)
class OptionsFile:
    """A file of options that was read once, as a pipe can be."""

    path: Path
    text: str
    values: Mapping[str, Any]
    """Values by the names of options."""

    @classmethod
    def read(cls, path: Path, config: type[Config]) -> Self:
        """Return a file of options of a config; raises `ConfigError` with its line."""
        text = _text(path)
        values = _parsed(text, path)
        if not isinstance(values, dict):
            raise ConfigError("contains no options by name", where=path, remedy=_REMEDY)
        try:
            result = cls(path=path, text=text, values=flat(values, groups_of(config)))
        except ConfigError as error:
            raise ConfigError(error.problem, where=path, remedy=error.remedy) from error
        for name, value in result.values.items():
            try:
                nested_values(config, {name: value}, spelled=lambda option: option.name)
            except ConfigError as error:
                raise result._located(error, name) from error
        return result

    def locate(self, error: ConfigError, typed: Collection[str]) -> ConfigError:
        """Return an error about an option that stands here, and was not typed, with its line."""
        named = re.match(r"--([\w.-]+)", error.problem)
        if error.where is not None or named is None or named[1] in typed:
            return error
        return error if _line_of(named[1], self.text) is None else self._located(error, named[1])

    def _located(self, error: ConfigError, name: str) -> ConfigError:
        """Return an error with the file and the line of an option."""
        line = _line_of(name, self.text)
        return ConfigError(error.problem, where=self.path, line=line, remedy=error.remedy)


def _line_of(name: str, text: str) -> int | None:
    """Return the number of the line with an option's key, from 1; None where none looks so."""
    key = re.escape(name.rpartition(".")[2]).replace("\\-", "[-_]")
    match = re.search(rf"(?m)(?:^|[\s\"'{{,.[])({key})[\"']?\s*[]:=]", text)
    return None if match is None else text.count("\n", 0, match.start(1)) + 1


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            # a pipe is welcome, a device without an end is not
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise unreadable(ConfigError, error, file, "check the path") from error
    if len(content) > _MAX_BYTES:
        raise ConfigError("is over 1 MiB", where=file, remedy="name a file of options")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8", where=file, remedy="save it as UTF-8") from error


def _parsed(text: str, file: Path) -> Any:  # noqa: ANN401
    kind = {".toml": "TOML", ".json": "JSON"}.get(file.suffix, "YAML")
    try:
        parsers: dict[str, Callable[[str], Any]] = {
            "TOML": tomllib.loads, "JSON": partial(parse_json, unique=True), "YAML": parse_yaml
        }  # fmt: skip
        return parsers[kind](text)
    except tomllib.TOMLDecodeError as error:
        position = re.search(r" \(at line (\d+).*\)$", str(error))
        problem = "not TOML: " + str(error).removesuffix(position[0] if position else "")
        line = int(position[1]) if position else None
        raise ConfigError(problem, where=file, line=line, remedy=_REMEDY) from error
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg}"
        raise ConfigError(problem, where=file, line=error.lineno, remedy=_REMEDY) from error
    except RepeatedName as error:
        problem = f"not JSON: the key {error.name!r} occurs twice"
        remedy = "leave one of them out"
        raise ConfigError(problem, where=file, remedy=remedy) from error
    except ConfigError as error:
        error.where = file
        raise
    except (ValueError, RecursionError) as error:
        # numbers of thousands of digits, thousands of levels
        problem = f"cannot be read: {json_problem(error)}"
        raise ConfigError(problem, where=file, remedy=_REMEDY) from error


def parse_yaml(text: str) -> Any:  # noqa: ANN401
    """Return the value of a YAML text; raises `ConfigError` with the line."""
    import yaml

    try:
        return yaml.load(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        problem, remedy = error.problem, _REMEDY
        if "'\\t'" in str(problem):
            problem, remedy = "found a tab", "write spaces in place of tabs"
        raise ConfigError(f"not YAML: {problem}", line=line, remedy=remedy) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", remedy=_REMEDY) from error


# 010 is 8 to YAML 1.1 and 10 to 1.2, and the name of a class or of a column to a user
_DIGITS = r"(?:0|[1-9]\d*)"
_TYPES = {
    "bool": (r"true|false", "tf"),
    "int": (rf"[-+]?{_DIGITS}", "-+0123456789"),
    "float": (
        rf"[-+]?(?:\.\d+|{_DIGITS}(?:\.\d*)?)(?:[eE][-+]?\d+)?|[-+]?\.inf|\.nan",
        "-+.0123456789",
    ),
    "null": (r"~|null|", ["~", "n", ""]),
}
"""Expressions of the core schema and the characters that they begin with, in order."""


@cache
def _loader() -> Any:  # noqa: ANN401
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """A safe loader of the core schema that refuses aliases, tags and keys that recur."""

        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

        def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401
            event = self.peek_event()
            tagged = getattr(event, "tag", None) is not None
            if tagged or isinstance(event, yaml.AliasEvent):
                problem = f"{'tags' if tagged else 'aliases'} are not supported"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: ANN401
            seen = set[str]()
            for key, _ in node.value:
                problem = None
                if not isinstance(key, yaml.ScalarNode):
                    problem = "a key is not a name"
                elif key.value in seen:
                    problem = f"the key {key.value!r} occurs twice"
                if problem is not None:
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    _add_types(Loader)
    return Loader


def _add_types(reader: Any) -> None:  # noqa: ANN401
    for kind, (expression, first) in _TYPES.items():
        tag, resolvers = f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{expression})\Z")
        reader.add_implicit_resolver(tag, resolvers, list(first))


def config_lines(missing: Sequence[Option], values: Mapping[str, Any]) -> str:
    """Return values by options as YAML that `OptionsFile` reads; those missing in comments.

    Letters that standard output would show as something else are escaped.
    """
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """A dumper that quotes what the loader would not read as text."""

        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    _add_types(Dumper)
    # other readers take it for a number
    Dumper.add_implicit_resolver(
        "tag:yaml.org,2002:int", re.compile(r"[-+]?0\d[\d.]*\Z"), list("-+0")
    )
    nested: dict[str, Any] = {}
    for name, value in values.items():
        level = nested
        *groups, last = name.split(".")
        for group in groups:
            level = level.setdefault(group, {})
        level[last] = value
    absent = [f"# {option.name}: (required)" for option in missing]
    write = partial(yaml.dump, nested, Dumper=Dumper, sort_keys=False, width=100)
    written = write(allow_unicode=True).removesuffix("\n")
    if not all(map(prints_exactly, written.split("\n"))):
        written = write(allow_unicode=False).removesuffix("\n")
    return "\n".join([*absent, written])
