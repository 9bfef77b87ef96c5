"""Processes that open pickled weights need not import torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forking import forked_opening


@pytest.fixture(scope="module", autouse=True)
def quick_opening() -> Iterator[None]:
    """Fork them: they start in no time."""
    with forked_opening():
        yield
