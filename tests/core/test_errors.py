from __future__ import annotations

import pickle

import pytest

from bertsmith.core.errors import ExampleError, MissingExtra, NonFiniteOutputs, UserError


@pytest.mark.parametrize(
    "error",
    [
        ExampleError("is blank", where="texts.csv", line=3, remedy="leave it out"),
        NonFiniteOutputs(where="texts.csv", line=3),
        MissingExtra("ray", "ray", "a cluster"),
    ],
)
def test_an_error_is_the_same_in_another_process(error: UserError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), found.args) == (type(error), str(error), error.args)
    assert vars(found) == vars(error)
