"""The base of all configs: frozen, keyword-only, strict about unknown keys, overridable by path."""

from __future__ import annotations

import dataclasses
import numbers
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from bertsmith.core.errors import ConfigError
from bertsmith.core.files import read_json
from bertsmith.core.printable import printable

_MAX_BYTES = 2**20
# characters shown of a value
_SHOWN = 80

POSITIONAL: Mapping[str, Any] = {"positional": True}
"""Metadata of a field that the command line takes by its position."""
INLINE: Mapping[str, Any] = {"inline": True}
"""Metadata of a nested config whose options stand beside those of the config around it."""

NO_OPTION: Mapping[str, Any] = {"option": False}
"""Metadata of a field that others than the user set."""

CHANGEABLE: Mapping[str, Any] = {"changeable": ()}
"""Metadata of a field that changes no result: a run that is resumed may have another value."""


def path_of(*contents: str) -> Mapping[str, Any]:
    """Return the metadata of a path that may be another one where `contents` are the same.

    They are names of attributes, such as a hash of the files.
    """
    return {"changeable": contents}


def named(name: str) -> Mapping[str, Any]:
    """Return the metadata of a field whose option has another name than the field."""
    return {"name": name}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A frozen set of settings that can be dumped, loaded and overridden by dotted path.

    Subclasses are frozen keyword-only dataclasses whose fields are numbers, strings, booleans,
    ``None``, literals, tuples of these, or other configs. ``__post_init__`` may raise, never alter.
    Those that a verb takes are options of the command line too (core/options.py).
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values, nested as the configs are."""
        return {f.name: plain_value(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any], *, where: str | Path | None = None) -> Self:
        """Build the config from plain values; `ConfigError` on an unknown or ill-typed key."""
        hints = typing.get_type_hints(cls)
        names = {f.name for f in dataclasses.fields(cls)}
        for key in data:
            if key not in names:
                raise ConfigError(
                    f"unknown setting {key!r} in {cls.__name__}",
                    where=where,
                    remedy=f"known are: {', '.join(sorted(names))}",
                )
        needed = (
            f.name
            for f in dataclasses.fields(cls)
            if f.default is f.default_factory is dataclasses.MISSING
        )
        if missing := [name for name in needed if name not in data]:
            problem = f"{cls.__name__} lacks {', '.join(missing)}"
            raise ConfigError(problem, where=where, remedy="add it")
        values = {key: typed_value(value, hints[key], key, where) for key, value in data.items()}
        return cls(**values)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a JSON file; raise `ConfigError` when it is no JSON object or does not fit."""
        return cls.from_dict(read_json(path, ConfigError, largest=_MAX_BYTES), where=path)

    def with_changeable(self, given: Self) -> Self:
        """Return a copy with those fields of another config that change no result."""
        changes: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            own, other = getattr(self, f.name), getattr(given, f.name)
            same = f.metadata.get("changeable")
            if same is not None and all(getattr(self, n) == getattr(given, n) for n in same):
                changes[f.name] = other
            elif isinstance(own, Config) and type(own) is type(other):
                changes[f.name] = own.with_changeable(other)
        return dataclasses.replace(self, **changes)

    def override(self, **dotted: Any) -> Self:  # noqa: ANN401
        """Return a copy with some settings replaced: ``{"optimiser.lr": 1e-3}``."""
        changes = dict(dotted)
        data = self.to_dict()
        for path, value in changes.items():
            *parents, last = path.split(".")
            level = data
            for parent in parents:
                if not isinstance(level.get(parent), dict):
                    raise ConfigError(f"no group of settings named {parent!r} in {path!r}")
                level = level[parent]
            level[last] = value
        return type(self).from_dict(data)


def plain_value(value: Any) -> Any:  # noqa: ANN401
    """Return a value as plain JSON values."""
    if isinstance(value, Config):
        return value.to_dict()
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


_UNFIT = object()


def typed_value(value: Any, hint: Any, key: str, where: str | Path | None) -> Any:  # noqa: ANN401
    """Return a value as the type that a hint asks for.

    A string may stand for a path, an integer for a float, a dictionary for a config, and a single
    value for a tuple of one. Raises `ConfigError`.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    result: Any = _UNFIT
    if origin in (typing.Union, types.UnionType):
        result = _typed_option(value, arguments, key, where)
    elif origin is typing.Literal:
        # by type first: an array of numpy is equal to nothing as a whole
        if any(type(value) is type(known) and value == known for known in arguments):
            result = value
    elif origin in (tuple, Sequence):
        items = (value,) if isinstance(value, str | Path | int | float) else value
        if isinstance(items, list | tuple):
            result = tuple(typed_value(item, arguments[0], key, where) for item in items)
    elif _is_config(hint) and isinstance(value, dict):
        result = hint.from_dict(value, where=where)
    elif isinstance(hint, type):
        result = _typed_scalar(value, hint)
    if result is _UNFIT:
        raise ConfigError(
            f"{key} is {_described(value)}",
            where=where,
            remedy=f"it must be {described_type(hint)}",
        )
    return result


def _described(value: object) -> str:
    """Return a value as a message shows it, or its type where it cannot be shown on a line."""
    kind = f"of type {type(value).__name__}"
    try:
        shown = repr(value)
    except Exception:
        # a number of thousands of digits, or an object of a library that fails
        return kind
    # tables and arrays are drawn in several lines
    return kind if "\n" in shown else printable(shown, _SHOWN)


def _typed_option(
    value: Any,  # noqa: ANN401
    options: Sequence[Any],
    key: str,
    where: str | Path | None,
) -> Any:  # noqa: ANN401
    """Return a value as the first type of a union that it fits."""
    if value is None and type(None) in options:
        return None
    for option in options:
        if _is_config(option) and isinstance(value, dict):
            # what is wrong inside is to be named, and not the whole
            return option.from_dict(value, where=where)
        if option is not type(None):
            with suppress(ConfigError):
                return typed_value(value, option, key, where)
    return _UNFIT


def _typed_scalar(value: Any, hint: type) -> Any:  # noqa: ANN401
    # a bool is an int to Python, never to a reader of a config file
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    # numbers of numpy have types of their own
    if hint is int and is_number and isinstance(value, numbers.Integral):
        return int(value)
    if hint is float and is_number:
        return float(value)
    if hint is bool and _is_numpy_bool(value):
        return bool(value)
    if hint is Path and isinstance(value, str) and value.strip():
        return Path(value)
    return value if isinstance(value, hint) and hint is not int else _UNFIT


def _is_config(hint: Any) -> bool:  # noqa: ANN401
    return isinstance(hint, type) and issubclass(hint, Config)


def _is_numpy_bool(value: Any) -> bool:  # noqa: ANN401
    """Return whether a value is one of numpy's truth values, which comparisons of it give."""
    return getattr(getattr(value, "dtype", None), "kind", "") == "b" and value.ndim == 0


_KINDS: Mapping[Any, str] = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path",
}  # fmt: skip


def described_type(hint: Any) -> str:  # noqa: ANN401
    """Return the values that a type has in plain words, such as "a whole number"."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = (described_type(argument) for argument in arguments if argument is not type(None))
        return " or ".join(dict.fromkeys(kinds))
    if origin is typing.Literal:
        return ("one of " if len(arguments) > 1 else "") + ", ".join(map(str, arguments))
    if origin in (tuple, Sequence):
        return f"a list, each {described_type(arguments[0])}"
    if isinstance(hint, type) and issubclass(hint, Config):
        return f"a group of {', '.join(field.name for field in dataclasses.fields(hint))}"
    return _KINDS.get(hint, getattr(hint, "__name__", str(hint)))


def check_least(config: Config, bounds: Mapping[str, float], *, group: str = "") -> None:
    """Raise `ConfigError` for a field that is less than its bound; None passes.

    `group` precedes the names of options in the message.
    """
    for name, bound in bounds.items():
        value = getattr(config, name)
        if value is not None and not value >= bound:
            raise _outside(group + name, value, f"at least {bound}")


def check_range(config: Config, names: Iterable[str], interval: str, *, group: str = "") -> None:
    """Raise `ConfigError` for a field that is not in an interval, as "(0, 1]"; None passes."""
    low, high = map(float, interval[1:-1].split(","))
    for name in names:
        value = getattr(config, name)
        if value is None:
            continue
        above = value >= low if interval[0] == "[" else value > low
        below = value <= high if interval[-1] == "]" else value < high
        if not (above and below):
            raise _outside(group + name, value, f"in {interval}")


def _outside(name: str, value: object, remedy: str) -> ConfigError:
    option = "--" + name.replace("_", "-")
    return ConfigError(f"{option} is {value}", remedy=f"it must be {remedy}")
