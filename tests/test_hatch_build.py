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


def test_a_compiler_without_amx_compiles_the_others(build: ModuleType, tmp_path: Path) -> None:
    old = tmp_path / "g++-10"
    old.write_text('#!/bin/sh\ncase "$*" in *-mamx*) exit 1;; esac\n')
    old.chmod(0o755)
    assert build.known_sets([str(old)]) == ["avx2", "avx512", "avx512_bf16"]
    units = build.units_of(build.known_sets([str(old)]))
    assert not any("amx" in word.lower() for unit in units for word in (unit[1], *unit[2]))


def test_a_build_that_is_not_to_compile_leaves_the_library_alone(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "_kernels.so"
    library.touch()
    monkeypatch.setattr(build, "LIBRARY", library)
    monkeypatch.setenv("BERTSMITH_KERNELS", "no")
    data: dict[str, object] = {}
    hook = object.__new__(build.KernelsHook)
    hook.initialize("editable", data)
    assert library.exists()
    assert data == {}
