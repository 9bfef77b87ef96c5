from __future__ import annotations

import os
from pathlib import Path

import pytest

import bertsmith
from bertsmith.core.pool import usable_processors


def test_processors_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 8})
    assert usable_processors() == 3
    # as on macOS
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_processors() == os.cpu_count()


def test_no_other_module_asks_for_what_only_linux_has() -> None:
    files = Path(bertsmith.__file__).parent.rglob("*.py")
    asking = [file.name for file in files if "sched_getaffinity" in file.read_text("utf-8")]
    assert asking == ["pool.py"]
