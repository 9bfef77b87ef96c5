"""Compile the native kernels when the package is built; `python hatch_build.py` compiles in place.

Without a compiler, on other machines than x86-64 with Linux, or where compiling fails, the package
is built without them, and a line says so. `CXX` names the compiler. With `BERTSMITH_KERNELS=no`
the package is built without compiling, and a library that is there stays as it is.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "kernels"
LIBRARY = ROOT / "src" / "bertsmith" / "core" / "_kernels.so"
OPTIONS = [
    "-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread",
    "-Wall", "-Wextra", "-Wno-maybe-uninitialized",
]  # fmt: skip
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]
INSTRUCTION_SETS = {
    "avx2": ["-mavx2", "-mfma"],
    "avx512": AVX512,
    "avx512_bf16": [*AVX512, "-mavx512bf16", "-mavx512vnni"],
    "amx": [
        *AVX512, "-mavx512bf16", "-mavx512vnni", "-mamx-tile", "-mamx-bf16", "-mamx-int8",
    ],
}  # fmt: skip
# Compilers before GCC 11 and Clang 12 do not know it. Products alone gain by it: losses are those
# of the set before.
TILES = "amx"
# masks of dropout need nothing that later sets have
WITHOUT_BF16 = ("avx2", "avx512")


def compiler() -> list[str] | None:
    """Return the command of the C++ compiler, None if there is none."""
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        return named if shutil.which(named[0]) else None
    return next(([name] for name in ("g++", "clang++", "c++") if shutil.which(name)), None)


def compile_kernels(library: Path = LIBRARY) -> str | None:
    """Compile the kernels into `library`; return why that was not possible, else None."""
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        return f"they are for Linux on x86-64, not {sys.platform} on {platform.machine()}"
    command = compiler()
    if command is None:
        return "there is no C++ compiler (g++, clang++, c++ or the one that CXX names)"
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        units = units_of(known_sets(command))
        objects = [f"{folder}/{number}.o" for number in range(len(units))]
        running = []
        for (source, name, definitions), to in zip(units, objects, strict=True):
            options = [*OPTIONS, *INSTRUCTION_SETS.get(name, []), *definitions]
            running.append(_start([*command, *options, "-c", str(SOURCES / source), "-o", to]))
        failures = [failure for failure in map(_failure, running) if failure]
        made = f"{folder}/{library.name}"
        if not failures:
            link = _start([*command, "-shared", "-pthread", *objects, "-o", made])
            failures = [failure for failure in [_failure(link)] if failure]
        if failures:
            return failures[0]
        os.replace(made, library)
    return None


def known_sets(command: list[str]) -> list[str]:
    """Return the names of the instruction sets that a compiler knows."""
    asked = [*command, *INSTRUCTION_SETS[TILES], "-x", "c++", "-E", os.devnull]
    if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
        return list(INSTRUCTION_SETS)
    return [name for name in INSTRUCTION_SETS if name != TILES]


def units_of(sets: list[str]) -> list[tuple[str, str, list[str]]]:
    """Return what is compiled: a source, the instruction set it is for or "", its definitions."""
    units = [("dispatch.cpp", "", ["-DWITH_AMX"] if TILES in sets else []), ("threads.cpp", "", [])]
    for name in sets:
        space = f"-DKERNELS=kernels_{name}"
        units.append(("encoder.cpp", name, [space, f"-DTABLE={name}_kernels"]))
        if name != TILES:
            units.append(("cross_entropy.cpp", name, [space, f"-DTABLE={name}_losses"]))
        if name in WITHOUT_BF16:
            units.append(("dropout.cpp", name, [space, f"-DTABLE={name}_masks"]))
    return units


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _failure(running: subprocess.Popen[str]) -> str | None:
    output, _ = running.communicate()
    if running.returncode == 0:
        return None
    lines = [line for line in output.splitlines() if "error" in line] or output.splitlines()
    said = lines[0].strip() if lines else "it says nothing"
    return f"{running.args[0]} failed: {said}"  # type: ignore[index]


class KernelsHook(BuildHookInterface):  # type: ignore[misc, valid-type]
    """Hatchling's hook: the library goes into wheels, which then are for one platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before files are collected."""
        del version
        if os.environ.get("BERTSMITH_KERNELS") == "no":
            return
        LIBRARY.unlink(missing_ok=True)
        reason = compile_kernels()
        if reason is not None:
            self.app.display_warning(f"bertsmith is built without native kernels: {reason}")
            return
        build_data["artifacts"].append(f"/{LIBRARY.relative_to(ROOT)}")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-linux_x86_64"


if __name__ == "__main__":
    reason = compile_kernels()
    if reason is not None:
        sys.exit(f"the native kernels were not compiled: {reason}")
