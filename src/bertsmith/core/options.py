"""The options of a config: one for each field, on the command line, in files and in Python.

An option's name is that of its field with dashes for underscores. The fields of a nested config
have its name and a dot before theirs (``search.epochs``), unless it is marked `INLINE`, and a field
may be given another name by its metadata. Where underscores are given they stand for dashes: keys
of files and keywords of Python have them. The explanation of an option is the string below its
field.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import json
import math
import sys
import textwrap
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from numbers import Integral, Rational, Real
from pathlib import Path
from typing import Any, TypeVar

from bertsmith.core.config import Config, plain_value, typed_value
from bertsmith.core.errors import ConfigError
from bertsmith.core.printable import shell_quoted

C = TypeVar("C", bound=Config)
REQUIRED = dataclasses.MISSING
"""The default of an option that has to be given."""
# larger numbers overflow what is computed from them, in floats or in 64 bits
_BEYOND_USE = 10**18
_FOREIGN = {
    "attention-probs-dropout-prob": "attention-dropout",
    "gradient-accumulation-steps": "gradient-accumulation",
    "hidden-dropout-prob": "hidden-dropout",
    "label-smoothing-factor": "label-smoothing",
    "lr": "learning-rate",
    "lr-scheduler-type": "schedule",
    "max-grad-norm": "max-gradient-norm",
    "max-seq-length": "max-length",
    "max-steps": "steps",
    "mlm-probability": "masking.probability",
    "num-train-epochs": "epochs",
    "output-dir": "out",
    "per-device-train-batch-size": "batch-size",
    "train-batch-size": "batch-size",
    "validation-file": "dev",
    "vocab-size": "size",
    "warmup-proportion": "warmup",
    "warmup-ratio": "warmup",
}
"""Options of transformers' and Google's scripts, and what they are called here."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of a config, and the field that has its value."""

    name: str
    path: tuple[str, ...]
    hint: Any
    default: Any
    positional: bool
    group: type[Config]
    in_absent_group: bool = False
    """True if the nested config around it is None by default."""

    @property
    def explanation(self) -> str:
        """The string below the field, on one line."""
        return _explanations(typing.cast("Any", self.group)).get(self.path[-1], "")

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it can be; empty for an option that can be anything."""
        kinds = (self.hint, *typing.get_args(self.hint))
        literals = [kind for kind in kinds if typing.get_origin(kind) is typing.Literal]
        words = tuple(str(word) for kind in literals for word in typing.get_args(kind))
        return ("true", "false") if bool in kinds and self.hint is not bool else words

    @property
    def shown(self) -> str:
        """The option as it is typed: ``--out``, or ``MODEL`` if its position says which it is."""
        return self.name.upper() if self.positional else f"--{self.name}"


def options_of(config: type[Config]) -> Mapping[str, Option]:
    """Return the options of a config by name, those of nested ones after its own."""
    return _all_options(typing.cast("Any", config))


@cache
def _all_options(config: Any) -> Mapping[str, Option]:  # noqa: ANN401 (mypy finds no hash of it)
    results = sorted(_options(config, "", (), config), key=lambda option: len(option.path))
    assert len({option.name for option in results}) == len(results), "two options of one name"
    return {option.name: option for option in results}


def _options(
    config: type[Config], prefix: str, path: tuple[str, ...], group: type[Config]
) -> Iterator[Option]:
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        if field.metadata.get("option") is False:
            continue
        hint, option_path = hints[field.name], (*path, field.name)
        name = prefix + field.metadata.get("name", field.name.replace("_", "-"))
        if (nested := _nested(hint)) is not None:
            inner = prefix if field.metadata.get("inline") else f"{name}."
            default = _default(field)
            for option in _options(nested, inner, option_path, nested):
                yield dataclasses.replace(
                    option,
                    default=_inside(default, option, len(option_path)),
                    in_absent_group=option.in_absent_group or default is None,
                )
            continue
        yield Option(
            name=name,
            path=option_path,
            hint=hint,
            default=_default(field),
            positional=bool(field.metadata.get("positional")),
            group=group,
        )


def _nested(hint: Any) -> type[Config] | None:  # noqa: ANN401
    """Return the config that a field holds, or may hold beside None."""
    kinds = () if typing.get_origin(hint) is tuple else (hint, *typing.get_args(hint))
    result = (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Config))
    return next(result, None)


def _default(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _inside(default: Any, option: Option, depth: int) -> Any:  # noqa: ANN401
    """Return the default of an option inside a nested config that has a default itself."""
    for name in option.path[depth:]:
        if not isinstance(default, Config):
            return option.default
        default = getattr(default, name)
    return default


@cache
def _explanations(config: Any) -> dict[str, str]:  # noqa: ANN401 (as above)
    """Return the strings below the fields of a config, and of those that it inherits from."""
    results: dict[str, str] = {}
    for base in reversed(config.__mro__):
        if not issubclass(base, Config) or base is Config:
            continue
        try:
            source = inspect.getsource(base)
        except OSError:
            # a package without its source, or a class made on the fly
            continue
        (tree,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(tree, ast.ClassDef)
        for field, after in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                results[field.target.id] = " ".join(after.value.value.split())
    return results


def docstring(item: Any) -> str:  # noqa: ANN401
    """Return the docstring of a module, class or function, from its source under `python -OO`."""
    if sys.flags.optimize < 2:
        return inspect.getdoc(item) or ""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(item)))
    except OSError:
        # a package without its source
        return ""
    node = tree if inspect.ismodule(item) else tree.body[0]
    return ast.get_docstring(typing.cast("ast.FunctionDef", node)) or ""


def flat(values: Mapping[str, Any], groups: Collection[str], prefix: str = "") -> dict[str, Any]:
    """Return values by the names of options, with the groups among `groups` taken apart.

    A group that is None has no options, as in YAML without lines below its name. Raises
    `ConfigError` for an option that is there twice, such as by `a_b` and `a-b`.
    """
    results: dict[str, Any] = {}
    for key, value in values.items():
        name = prefix + str(key).rstrip("_").replace("_", "-")
        inner = value.to_dict() if isinstance(value, Config) else value
        is_group = isinstance(inner, Mapping | None) and name in groups
        below = flat(inner or {}, groups, f"{name}.") if is_group else {name: value}
        if twice := results.keys() & below:
            raise ConfigError(f"{min(twice)} is given twice", remedy="leave one of them out")
        results |= below
    return results


def groups_of(config: type[Config]) -> set[str]:
    """Return the names of groups of options: ``search``, ``masking``."""
    names = (name.split(".")[:-1] for name in options_of(config))
    return {".".join(parts[: n + 1]) for parts in names for n in range(len(parts))}


def unknown_option(name: str, known: Mapping[str, str]) -> ConfigError:
    """Return the error for an option that does not exist, with the one that may be meant.

    `known` has what messages call the options, by their names.
    """
    plain = name.lstrip("-")
    if inside := [shown for key, shown in known.items() if key.startswith(f"{plain}.")]:
        remedy = f"its options are: {', '.join(inside)}"
        return ConfigError(f"{name} is a group", remedy=remedy)
    closest = similar(plain, known)
    remedy = f"the options are: {', '.join(known.values())}"
    if closest is not None:
        remedy = f"did you mean {known[closest]}?"
    return ConfigError(f"there is no option {name}", remedy=remedy)


def similar(name: str, known: Collection[str]) -> str | None:
    """Return the known name closest to an unknown one, if any is close."""
    plain = name.replace("_", "-")
    plain = _FOREIGN.get(plain, plain)
    last = [
        candidate for candidate in known if candidate.rpartition(".")[2] == plain.rpartition(".")[2]
    ]
    close = difflib.get_close_matches(plain, sorted(known), n=1, cutoff=0.65)
    return plain if plain in known else next(iter((*last, *close)), None)


def typed_options(config: Config) -> str:
    """Return the options of a config that differ from their defaults, as a shell is given them.

    Each follows a space, for a command that is shown; those given by position are left out.
    """
    results = ""
    for option in options_of(type(config)).values():
        value: Any = config
        for name in option.path:
            value = getattr(value, name)
        if option.positional or value == option.default:
            continue
        assert not isinstance(value, bool), "a flag is typed without a value"
        items = [str(plain_value(item)) for item in value] if isinstance(value, tuple) else None
        text = str(plain_value(value)) if items is None else ",".join(items)
        if items is not None and any("," in item or item != item.strip() for item in items):
            text = json.dumps(items, ensure_ascii=False)
        results += f" --{option.name}{'=' if text.startswith('-') else ' '}{shell_quoted(text)}"
    return results


Spelling = Callable[[Option], str]
"""A function of an option that returns what messages call it."""


def as_typed(option: Option) -> str:
    """Return an option as it is typed on the command line."""
    return option.shown


def nested_values(
    config: type[Config], values: Mapping[str, Any], *, spelled: Spelling = as_typed
) -> dict[str, Any]:
    """Return values of options as plain values nested as the config is.

    Raises `ConfigError` for an option that does not exist and for a value of another type.
    """
    options, data = options_of(config), dict[str, Any]()
    for name, value in flat(values, groups_of(config)).items():
        option = options.get(name)
        if option is None:
            none = Option(
                name=name, path=(), hint=None, default=None, positional=False, group=config
            )
            names = {key: spelled(option) for key, option in options.items()}
            raise unknown_option(spelled(none), names)
        texts = value if isinstance(value, list | tuple) else (value,)
        if any("\0" in str(text) for text in texts if isinstance(text, str | Path)):
            raise ConfigError(f"{spelled(option)} holds a zero byte", remedy="leave it out")
        if option.positional:
            for text in texts:
                check_name(spelled(option), text)
        elif isinstance(value, str) and "," in value and _is_list_of_text(option.hint):
            # typed, they would be several
            remedy = "write a list, also of one text with a comma in it"
            raise ConfigError(f"{spelled(option)} is {value!r}", remedy=remedy)
        check_size(spelled(option), value)
        if any(isinstance(text, Real) and _is_nan(text) for text in texts):
            raise ConfigError(f"{spelled(option)} is not a number", remedy="give a number")
        level = data
        for group in option.path[:-1]:
            level = level.setdefault(group, {})
        try:
            meant = value if option.positional else _with_digits(value, option.hint)
            level[option.path[-1]] = typed_value(meant, option.hint, spelled(option), None)
        except RecursionError as error:
            remedy = "give a list that does not hold itself"
            raise ConfigError(f"{spelled(option)} is nested too deeply", remedy=remedy) from error
    return data


def _is_list_of_text(hint: Any) -> bool:  # noqa: ANN401
    return typing.get_origin(hint) is tuple and str in typing.get_args(hint)


def check_name(shown: str, value: object) -> None:
    """Raise `ConfigError` for a blank name, which as a path would be the working folder."""
    if isinstance(value, str) and not value.strip():
        remedy = "name it; a variable of the shell may be unset"
        raise ConfigError(f"{shown} is empty", remedy=remedy)


def check_size(shown: str, value: object) -> None:
    """Raise `ConfigError` for a whole number or fraction that overflows, also in a list.

    `shown` is what the message calls it. Python itself refuses to write the largest ones.
    """
    items = value if isinstance(value, list | tuple) else (value,)
    whole = (item for item in items if isinstance(item, Rational))
    if any(abs(int(item.numerator)) >= _BEYOND_USE * int(item.denominator) for item in whole):
        raise ConfigError(f"{shown} is too large", remedy="it must be below 10^18")


def _with_digits(value: Any, hint: Any) -> Any:  # noqa: ANN401
    """Return whole numbers as text where it is asked for: a layer, a column or a class by number.

    YAML and Python users write them without quotes.
    """
    kinds = {hint, *typing.get_args(hint)}
    if isinstance(value, list | tuple) and tuple in {typing.get_origin(kind) for kind in kinds}:
        return [_with_digits(item, hint) for item in value]
    if not isinstance(value, Integral) or isinstance(value, bool) or kinds & {int, float, Path}:
        return value
    if abs(int(value)) >= _BEYOND_USE:
        return value
    digits = str(int(value))
    return digits if str in kinds or digits in kinds else value


def _is_nan(number: Real) -> bool:
    # a long integer is a number, but none that a float can hold
    return not isinstance(number, int) and math.isnan(number)


def missing_options(config: type[Config], given: Collection[str]) -> list[Option]:
    """Return the options that have to be given and are not."""
    return [
        option
        for option in options_of(config).values()
        if option.default is REQUIRED and not option.in_absent_group and option.name not in given
    ]


Defaults = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""A function of nested values given that returns others that depend on them, plain and nested."""


def no_defaults(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return no values: defaults are those of the fields."""
    del given
    return {}


def configured(
    config: type[C],
    values: Mapping[str, Any],
    *,
    defaults: Defaults = no_defaults,
    spelled: Spelling = as_typed,
) -> C:
    """Return the config with these values of options.

    Of a nested config of which some are given, the rest is what `defaults` returns. Raises
    `ConfigError`.
    """
    data = nested_values(config, values, spelled=spelled)
    if missing := missing_options(config, flat(values, groups_of(config))):
        remedy = "add it" if len(missing) == 1 else "add them"
        raise ConfigError(f"missing: {', '.join(map(spelled, missing))}", remedy=remedy)
    below = _merged(_group_defaults(config), defaults(data))
    return config.from_dict(_merged({key: below[key] for key in below if key in data}, data))


def _group_defaults(config: type[Config]) -> dict[str, Any]:
    """Return the plain defaults of nested configs that are not None by default."""
    data: dict[str, Any] = {}
    for option in options_of(config).values():
        if len(option.path) > 1 and not option.in_absent_group:
            level = data
            for group in option.path[:-1]:
                level = level.setdefault(group, {})
            level[option.path[-1]] = plain_value(option.default)
    return data


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values with those of `above` in place of those of `below`."""
    merged = dict(below)
    for key, value in above.items():
        inner = merged.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        if not (value is None and isinstance(inner, Mapping)):
            merged[key] = _merged(inner, value) if both else value  # type: ignore[arg-type]
    return merged


def effective_values(
    config: type[Config], data: Mapping[str, Any], defaults: Defaults = no_defaults
) -> dict[str, Any]:
    """Return the plain values of options by name, for nested values given and the defaults.

    Options that have to be given and are not are left out, and groups that are None by default.
    """
    results: dict[str, Any] = {}
    below = _merged(defaults(data), data)
    for option in options_of(config).values():
        level: Any = below
        for name in option.path:
            level = level.get(name, REQUIRED) if isinstance(level, Mapping) else REQUIRED
        if level is REQUIRED and not option.in_absent_group:
            level = option.default
        if level is not REQUIRED:
            results[option.name] = plain_value(level)
    return results
