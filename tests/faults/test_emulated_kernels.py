"""The kernels for AVX-512, bf16, VNNI and AMX on a processor without, by emulated instructions."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

import bertsmith
from bertsmith.core.kernels import instruction_set

TESTS = Path(__file__).parents[1]
EMULATED = Path(__file__).with_name("emulated_avx512.h")
TESTED = ("engine/test_native.py", "objectives/test_cross_entropy.py", "network/test_dropout.py")


def build_script() -> ModuleType:
    spec = spec_from_file_location("hatch_build", TESTS.parent / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_emulated(library: Path, scratch: Path) -> None:
    """Compile all kernels for AVX2, and say that the processor has everything they ask for."""
    script = build_script()
    compiler = script.compiler()
    assert compiler is not None
    common = [*compiler, *script.OPTIONS, "-mavx2", "-mfma", "-Wno-psabi", "-Wno-attributes"]
    common += ["-include", str(EMULATED), "-D__builtin_cpu_supports(name)=1"]
    sets = list(script.INSTRUCTION_SETS)
    objects = []
    for number, (source, name, definitions) in enumerate(script.units_of(sets)):
        objects.append(str(scratch / f"{number}.o"))
        emulated = f"-DEMULATED_SET={sets.index(name) + 1 if name else len(sets)}"
        command = [*common, emulated, *definitions]
        command += ["-c", str(script.SOURCES / source), "-o", objects[-1]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr[-3000:]}"
    subprocess.run([*compiler, "-shared", "-pthread", *objects, "-o", str(library)], check=True)


@pytest.mark.faults
@pytest.mark.skipif(instruction_set() is None, reason="no native kernels were built")
def test_emulated_kernels_are_as_exact(tmp_path: Path) -> None:
    source = Path(bertsmith.__file__).parent
    package = tmp_path / "src" / "bertsmith"
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__", "_kernels.so"))
    compile_emulated(package / "core" / "_kernels.so", tmp_path)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(package.parent), str(TESTS)))}
    environment.pop("BERTSMITH_KERNELS", None)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip

    asked = run("-c", "from bertsmith.core.kernels import *; print(instruction_sets())")
    assert "amx" in asked.stdout, asked.stderr
    options = ("-q", "-rs", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'run'}")
    done = run("-m", "pytest", *options, *(str(TESTS / name) for name in TESTED))
    assert done.returncode == 0, done.stdout[-5000:]
    assert "SKIPPED" not in done.stdout, done.stdout[-5000:]
