"""Limits of the system that tests set, which stand in for a full disk."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def files_of(size: int) -> Iterator[None]:
    """Refuse files of more than some bytes, in this process and those that it starts.

    Modules that are imported for the first time are not kept compiled meanwhile: CPython 3.11 would
    keep them cut short, and no process could import them any more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
