"""A system without the calls that the program needs."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from bertsmith.core.errors import ConfigError


def test_a_system_without_locks_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    spec = importlib.util.find_spec("bertsmith.core.ownership")
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ConfigError, match=r"no locks of files.*use Linux"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
