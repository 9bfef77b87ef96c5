"""The tests of arithmetic with the kernels of other chips, as far as this one can run them.

Each setting of the libraries is asked for at least once, with one thread and with two, and products
also add up in another order for each number of rows (other_order.py), as the libraries of some
chips do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parents[1]
FOLDERS = ("parity", "network", "objectives", "engine", "contracts", "weights/conversion")
FILES = ("training/test_optimiser.py", "training/test_loop.py", "recipes/test_embed.py")
# tests of tokens, of bytes and of imports, in which no operation of torch gives a fraction
WITHOUT_ARITHMETIC = (
    "parity/test_token*.py", "parity/test_fast_token_ids.py",
    "weights/conversion/test_tensor_bundle.py", "contracts/test_loaded_modules.py",
)  # fmt: skip
SETTINGS = [
    "ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=1",
    "ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=2",
    "ONEDNN_MAX_CPU_ISA=AVX512_CORE ATEN_CPU_CAPABILITY=avx512 OMP_NUM_THREADS=1",
    "OMP_NUM_THREADS=2",
]


def best_is_avx2() -> bool:
    """Return whether the libraries choose AVX2 by themselves, as the second setting has them."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(encoding="utf-8").split() if cpuinfo.exists() else []
    newer = [flag for flag in flags if flag.startswith(("avx512", "avx10", "avx_", "amx"))]
    return "avx2" in flags and not newer


if best_is_avx2():
    SETTINGS.remove("OMP_NUM_THREADS=2")


@pytest.mark.faults
@pytest.mark.parametrize("order", ["as it is", "other"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_bounds_hold(settings: str, order: str, tmp_path: Path) -> None:
    # torch takes kernels that are asked for without looking, and ends at their first instruction
    if "avx512" in settings and not torch.cpu._is_avx512_supported():
        pytest.skip("this processor has no AVX-512")
    places = [str(TESTS / name) for name in (*FOLDERS, *FILES)]
    options = [f"--ignore-glob={TESTS / name}" for name in WITHOUT_ARITHMETIC]
    options += ["-p", "other_order"] if order == "other" else []
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--basetemp={tmp_path / 'run'}", *options, *places],
        # threads that wait leave the processors to the other tests
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_WAIT_POLICY": "PASSIVE"}
        | dict(part.split("=") for part in settings.split()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
