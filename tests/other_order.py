"""Products that add up in another order for each number of rows, as those of other chips do.

    python -m pytest -p other_order tests/parity

Some libraries take another kernel, and so another order, when a product has few rows; what is bound
to hold everywhere has to hold with this plugin. It stands in for chips that are not at hand.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_OPERATIONS = torch.ops.aten
# where the two factors stand
_FACTORS = {
    _OPERATIONS.mm.default: 0,
    _OPERATIONS.bmm.default: 0,
    _OPERATIONS.addmm.default: 1,
    _OPERATIONS.baddbmm.default: 1,
}


@functools.cache
def _order(terms: int, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(7919 * rows + terms)
    return torch.randperm(terms, generator=generator)


class OtherOrder(TorchDispatchMode):
    """Products in float32 whose terms are shuffled by the number of rows."""

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Run an operation, its factors shuffled if it is a product."""
        first = _FACTORS.get(func)
        if first is not None:
            left, right = args[first], args[first + 1]
            if left.dtype == torch.float32 and left.device.type == "cpu":
                order = _order(left.shape[-1], left.shape[-2])
                factors = left.index_select(-1, order), right.index_select(-2, order)
                args = (*args[:first], *factors, *args[first + 2 :])
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _other_order() -> Iterator[None]:
    """Run every test with such products."""
    with OtherOrder():  # type: ignore[no-untyped-call]
        yield
