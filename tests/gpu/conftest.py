"""Every test of this folder needs a GPU; `make gpu` runs them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from bertsmith.network.fused import support

_HERE = f"{Path(__file__).parent}/"

# it imports kernels, and Triton comes with torch's builds for CUDA only
collect_ignore = [] if importlib.util.find_spec("triton") else ["test_fused.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests below this folder, and skip them where torch finds no GPU."""
    for item in items:
        # all tests are asked
        if str(item.path).startswith(_HERE):
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="torch finds no GPU"))


@pytest.fixture(autouse=True)
def kernels_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuse kernels in the small models of tests, too."""
    monkeypatch.setattr(support, "least_values", 0)
