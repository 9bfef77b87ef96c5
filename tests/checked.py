"""The type checker that the tests put around every function of the package.

jaxtyping's import hook writes its decorator above all of them. Its own would bind the arguments and
check them twice; here beartype checks them once, and a function with shapes in its signature runs
in a context of jaxtyping, where they have to agree with one another.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable
from inspect import isclass
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep673Exception, BeartypeDecorHintPep3119Exception

# an int will do for a float, as it does for mypy
_LIKE_MYPY = BeartypeConf(is_pep484_tower=True)
_jaxtyped: Callable[..., Any] = jaxtyping.jaxtyped


def install() -> None:
    """Check every function of the package, in modules that are imported from now on."""
    setattr(jaxtyping, "jaxtyped", _decorated)  # noqa: B010
    jaxtyping.install_import_hook("bertsmith", "checked.checked")


def checked(thing: Any) -> Any:  # noqa: ANN401
    """`thing` with its arguments and results checked at every call."""
    try:
        return beartype(conf=_LIKE_MYPY)(thing)
    except (BeartypeDecorHintPep673Exception, BeartypeDecorHintPep3119Exception):
        # jaxtyping hands methods over one by one, and beartype knows Self only in whole classes;
        # a protocol that is not for run time has nothing that could be checked
        return thing


def _decorated(thing: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """What stands above every function and class of the package instead of jaxtyping's own."""
    if thing is None:
        return functools.partial(_decorated, typechecker=typechecker)
    if isclass(thing):
        own = vars(thing).get("__init__")
        if dataclasses.is_dataclass(thing) and own is not None:
            setattr(thing, "__init__", _decorated(own, typechecker=typechecker))  # noqa: B010
        return thing
    thing.__annotations__ = hints = _hints(thing)
    found = typechecker(thing)
    return _in_context(found) if any(map(_has_shape, hints.values())) else found


def _in_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose axes have sizes of their own in each call."""

    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        with _jaxtyped("context"):
            return function(*given, **named)

    return called


def _hints(function: Any) -> dict[str, Any]:  # noqa: ANN401
    """A function's annotations, those that are not known yet left open as jaxtyping does."""
    written = function.__annotations__
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        hints = {}
        for name, annotation in written.items():
            try:
                # as get_type_hints does it
                hints[name] = eval(annotation, function.__globals__)
            except (NameError, TypeError):
                hints[name] = Any
        return hints


def _has_shape(hint: Any) -> bool:  # noqa: ANN401
    if isclass(hint) and not typing.get_args(hint):
        return issubclass(hint, jaxtyping.AbstractArray)
    return any(map(_has_shape, typing.get_args(hint)))
