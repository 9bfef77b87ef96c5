"""The build of the native kernels: what it says where it cannot compile them."""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def build() -> ModuleType:
    path = Path(__file__).parents[1] / "hatch_build.py"
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("compiler", "machine", "reason"),
    [
        ("no-such-compiler", "x86_64", "there is no C++ compiler"),
        ("false", "x86_64", "false failed"),
        ("g++", "aarch64", "not linux on aarch64"),
    ],
)
def test_reasons_not_to_compile_are_said_and_nothing_is_left(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    compiler: str, machine: str, reason: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert reason in build.compile_kernels(tmp_path / "_kernels.so")
    assert list(tmp_path.iterdir()) == []
