"""The invented corpus, and worker processes that need not import torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forking import forked_workers
from invented import folder, some_documents, store, tokenizer

__all__ = ["folder", "some_documents", "store", "tokenizer"]


@pytest.fixture(scope="module", autouse=True)
def quick_workers() -> Iterator[None]:
    """Fork workers: they start in no time."""
    with forked_workers():
        yield
