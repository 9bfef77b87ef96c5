"""The base of all configs: frozen, keyword-only, strict about unknown keys, overridable by path."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from bertsmith.core.errors import ConfigError
from bertsmith.core.json_files import read_json

_LARGEST = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A frozen set of settings that can be dumped, loaded and overridden by dotted path.

    Subclasses are frozen keyword-only dataclasses whose fields are numbers, strings, booleans,
    ``None``, literals, tuples of these, or other configs. ``__post_init__`` may raise, never alter.
    """

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values, nested as the configs are."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any], *, where: str | Path | None = None) -> Self:
        """Build the config from plain values; `ConfigError` on an unknown or ill-typed key."""
        hints = typing.get_type_hints(cls)
        known = {f.name for f in dataclasses.fields(cls)}
        for key in data:
            if key not in known:
                raise ConfigError(
                    f"unknown setting {key!r} in {cls.__name__}",
                    where=where,
                    remedy=f"known are: {', '.join(sorted(known))}",
                )
        values = {key: typed_value(value, hints[key], key, where) for key, value in data.items()}
        try:
            return cls(**values)
        except TypeError as error:
            raise ConfigError(f"{cls.__name__}: {error}", where=where) from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a JSON file; raise `ConfigError` when it is no JSON object or does not fit."""
        return cls.from_dict(read_json(path, ConfigError, largest=_LARGEST), where=path)

    def override(self, **dotted: Any) -> Self:  # noqa: ANN401
        """A copy with some settings replaced; nested ones by path, ``{"optimiser.lr": 1e-3}``."""
        changes = dict(dotted)
        data = self.to_dict()
        for path, value in changes.items():
            *parents, last = path.split(".")
            place = data
            for parent in parents:
                if not isinstance(place.get(parent), dict):
                    raise ConfigError(f"no group of settings named {parent!r} in {path!r}")
                place = place[parent]
            place[last] = value
        return type(self).from_dict(data)


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Config):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def typed_value(value: Any, hint: Any, key: str, where: str | Path | None) -> Any:  # noqa: ANN401
    """Return a value as the type that a hint asks for; raises `ConfigError`.

    A string may stand for a path, an integer for a float, a dictionary for a config.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        for option in (a for a in arguments if a is not type(None)):
            try:
                return typed_value(value, option, key, where)
            except ConfigError:
                continue
    elif origin is typing.Literal:
        if value in arguments:
            return value
        options = ", ".join(repr(a) for a in arguments)
        raise ConfigError(f"{key} is {value!r}", where=where, remedy=f"it can be {options}")
    elif origin in (tuple, Sequence) and isinstance(value, list | tuple):
        return tuple(typed_value(item, arguments[0], key, where) for item in value)
    elif isinstance(hint, type):
        if issubclass(hint, Config) and isinstance(value, dict):
            return hint.from_dict(value, where=where)
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if hint is Path and isinstance(value, str):
            return Path(value)
        # a bool is an int to Python, never to a reader of a config file
        if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
            return value
    name = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{key} is {value!r}", where=where, remedy=f"it must be of type {name}")
