"""The type checker that the tests put around every function of the package."""

from __future__ import annotations

from typing import Any

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep673Exception, BeartypeDecorHintPep3119Exception

# an int will do for a float, as it does for mypy
_LIKE_MYPY = BeartypeConf(is_pep484_tower=True)


def checked(thing: Any) -> Any:  # noqa: ANN401
    """`thing` with its arguments and results checked at every call."""
    try:
        return beartype(conf=_LIKE_MYPY)(thing)
    except (BeartypeDecorHintPep673Exception, BeartypeDecorHintPep3119Exception):
        # jaxtyping hands methods over one by one, and beartype knows Self only in whole classes;
        # a protocol that is not for run time has nothing that could be checked
        return thing
