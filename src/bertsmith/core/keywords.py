"""Options as keywords of Python: functions made of configs, and errors that name keywords.

A message names an option as it is typed, ``--batch-size``, wherever it is written. Where the user
called a function, `python_terms` puts ``batch_size`` in its place.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError, UserError
from bertsmith.core.options import (
    REQUIRED,
    Defaults,
    Option,
    configured,
    docstring,
    flat,
    no_defaults,
    options_of,
)

_NAMED = re.compile(r"(?<![\w'\"-])--(?P<name>[a-z][a-z0-9.-]*[a-z0-9])(?: (?P<value>[\w.+-]*\w))?")
"""An option in a message, and the word after it."""
_COMMAND = re.compile(r"(\b(?:bertsmith|torchrun|pip|tensorboard) )")


def python_function(
    name: str,
    config: type[Config],
    run: Callable[[Any], Any],
    defaults: Defaults = no_defaults,
    *,
    description: str | None = None,
) -> Callable[..., Any]:
    """Return `run` as a function whose keywords are the options of its config.

    Positional arguments of the command line may be given by position. Without a description, the
    docstring of `run` is taken. The function raises `ConfigError` for arguments that do not fit.
    """
    options = options_of(config)
    positional = [option.name for option in options.values() if option.positional]

    def function(*values: Any, **keywords: Any) -> Any:  # noqa: ANN401
        arguments = dict(zip(positional, values, strict=False))
        if len(values) > len(positional) or not arguments.keys().isdisjoint(flat(keywords, ())):
            raise ConfigError(
                f"{name} has too many arguments",
                remedy=f"by position it takes {', '.join(positional)} alone",
            )
        with python_terms(config):
            return run(
                configured(config, arguments | keywords, defaults=defaults, spelled=in_python)
            )

    function.__name__ = function.__qualname__ = name
    described = description or docstring(run)
    function.__doc__ = "\n".join([described, "", "Args:", *_documented(config)])
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        sorted(
            _parameters(options.values()),
            key=lambda parameter: (parameter.kind, parameter.default is not parameter.empty),
        )
    )
    return function


def in_python(option: Option) -> str:
    """Return an option as a keyword of Python."""
    return as_keyword(option.name)


def as_keyword(name: str) -> str:
    """Return the name of an option as a keyword of Python."""
    name = name.replace("-", "_")
    return name + "_" * keyword.iskeyword(name)


@contextmanager
def python_terms(*configs: type[Config]) -> Iterator[None]:
    """Make errors name options as keywords of Python, ``batch_size`` for ``--batch-size``.

    Values after options of these configs become those of keywords; commands stay as they are.
    """
    try:
        yield
    except UserError as error:
        error.reword(_rewriter(*configs))
        raise


def _rewriter(*configs: type[Config]) -> Callable[[str], str]:
    """Return a function that writes the options in a text as keywords of Python."""
    options = {name: value for config in configs for name, value in options_of(config).items()}

    def keyword_of(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        option = options.get(name)
        if option is None and (switch := options.get(name.removeprefix("no-"))) is not None:
            # a switch has no value
            return " ".join(filter(None, (f"{in_python(switch)}=False", value)))
        word = as_keyword(name)
        if value is None:
            return word
        if re.fullmatch(r"-?\d+(\.\d+)?", value):
            return f"{word}={value}"
        known = option is not None and value in option.choices
        return f'{word}="{value}"' if known else f"{word} {value}"

    def rewrite(text: str) -> str:
        prose, *command = _COMMAND.split(text, maxsplit=1)
        return _NAMED.sub(keyword_of, prose) + "".join(command)

    return rewrite


def _documented(config: type[Config]) -> Iterator[str]:
    """Yield a line for each option, those of a group below its name."""
    rewrite, groups = _rewriter(config), set[str]()
    for option in options_of(config).values():
        group, _, name = option.name.rpartition(".")
        if group and group not in groups:
            groups.add(group)
            yield f"    {as_keyword(group)}: a dictionary of"
        indent = "        " if group else "    "
        yield f"{indent}{as_keyword(name)}: {rewrite(option.explanation)}"


def _parameters(options: Iterable[Option]) -> Iterator[inspect.Parameter]:
    """Yield the parameters, one for each group of options."""
    kinds = inspect.Parameter
    groups = set[str]()
    for option in options:
        group = option.name.rpartition(".")[0]
        if not group:
            yield kinds(
                in_python(option),
                kinds.POSITIONAL_OR_KEYWORD if option.positional else kinds.KEYWORD_ONLY,
                default=kinds.empty if option.default is REQUIRED else option.default,
                annotation=option.hint,
            )
        elif group not in groups:
            groups.add(group)
            hint = dict[str, Any] | None
            yield kinds(as_keyword(group), kinds.KEYWORD_ONLY, default=None, annotation=hint)
