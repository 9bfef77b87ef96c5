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
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_VARARGS, CO_VARKEYWORDS, isclass
from types import CodeType
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
    code = thing.__code__
    if "<locals>" in thing.__qualname__ and _is_plain(thing):
        if code not in _within:
            _within[code] = _with_hints(_calling(thing), _hints(thing), typechecker)
        check = _within[code]

        # a function, as it may be a method
        @functools.wraps(thing)
        def called(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            return check(thing, *given, **named)

        return called
    return _with_hints(thing, _hints(thing), typechecker)


# a function within another is defined anew in every call, and a check takes a millisecond to make
_within: dict[CodeType, Callable[..., Any]] = {}
_NOT_PLAIN = CO_VARARGS | CO_VARKEYWORDS | CO_COROUTINE | CO_ASYNC_GENERATOR


def _is_plain(function: Any) -> bool:  # noqa: ANN401
    """Return whether a function takes its arguments without defaults, each by place or name."""
    code = function.__code__
    special = code.co_flags & _NOT_PLAIN or code.co_posonlyargcount or code.co_kwonlyargcount
    return not (special or function.__defaults__)


def _calling(function: Any) -> Any:  # noqa: ANN401
    """A function that calls the one it is given first, with the names and arguments of another."""
    code = function.__code__
    names = ", ".join(code.co_varnames[: code.co_argcount])
    made: dict[str, Any] = {}
    exec(f"def called(_function, {names}): return _function({names})", made)
    made["called"].__name__, made["called"].__qualname__ = code.co_name, function.__qualname__
    made["called"].__module__ = function.__module__
    return made["called"]


def _with_hints(
    function: Any,  # noqa: ANN401
    hints: dict[str, Any],
    typechecker: Callable[[Any], Any],
) -> Callable[..., Any]:
    function.__annotations__ = hints
    found: Callable[..., Any] = typechecker(function)
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
