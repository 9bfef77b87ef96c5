"""The processors that a process may use: those of its machine, its affinity and its container."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

import bertsmith
from bertsmith.core import processors
from bertsmith.core.processors import processor_quota, usable_processors


@pytest.mark.parametrize(("quota", "count"), [(math.inf, 3), (1.5, 2), (0.1, 1), (64, 3)])
def test_processors_are_those_that_this_process_may_use(
    quota: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "processor_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 8})
    assert usable_processors() == count
    # as on macOS
    monkeypatch.setattr(processors, "processor_quota", lambda: math.inf)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_processors() == os.cpu_count()


def test_no_other_module_asks_for_what_only_linux_has() -> None:
    files = Path(bertsmith.__file__).parent.rglob("*.py")
    asking = [file.name for file in files if "sched_getaffinity" in file.read_text("utf-8")]
    assert asking == ["processors.py"]


def laid_out(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return folder / "own"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"own": "0::/\n", "cpu.max": "50000 100000\n"}, 0.5),
        ({"own": "0::/\n", "cpu.max": "max 100000\n"}, math.inf),
        # that of a group above it
        (
            {
                "own": "0::/a/b\n",
                "a/b/cpu.max": "400000 100000\n",
                "a/cpu.max": "150000 100000\n",
            },
            1.5,
        ),
        # version 1 in a container, which sees its own group at the root
        (
            {
                "own": "9:memory:/docker/1\n7:cpu,cpuacct:/docker/1\n0::/docker/1\n",
                "cpu/cpu.cfs_quota_us": "200000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            2.0,
        ),
        (
            {
                "own": "1:cpu:/\n",
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            math.inf,
        ),
        ({"own": "2:cpuset:/\n", "cpuset/cpu.max": "1 2\n"}, math.inf),
        ({"own": "\n"}, math.inf),
        ({}, math.inf),
    ],
)
def test_a_container_has_a_share_of_the_processors(
    files: dict[str, str], quota: float, tmp_path: Path
) -> None:
    own = laid_out(tmp_path, files)
    assert processor_quota(tmp_path, own) == quota
