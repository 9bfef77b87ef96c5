"""The processors that this process may use, its control groups, the threads that its user wants."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

_GROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_processors() -> int:
    """Return the number of processors that this process may use; all where that is unknown.

    A share of their time, as a container is given, counts as so many, rounded up.
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, math.ceil(min(count, processor_quota())))


def processor_quota(root: Path = _GROUPS, own: Path = _OWN_GROUPS) -> float:
    """Return how many processors' time the control groups above this process allow it.

    Infinity where there is no limit, or none is known.
    """
    return min(map(_group_quota, group_folders("cpu", root, own)), default=math.inf)


def group_folders(
    controller: Literal["cpu", "memory"], root: Path = _GROUPS, own: Path = _OWN_GROUPS
) -> Iterator[Path]:
    """Yield the folders of the control groups above this process, of versions 1 and 2."""
    with suppress(OSError, ValueError):
        for line in own.read_text(encoding="utf-8", errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            base = root / controller if controllers else root
            group = base / path.lstrip("/")
            yield from (item for item in (group, *group.parents) if item.is_relative_to(base))


def _group_quota(group: Path) -> float:
    """Return the processors' time that one control group allows."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        with suppress(OSError, ValueError):
            texts = [(group / name).read_text(encoding="ascii") for name in names]
            # "max" and -1 are for no limit
            quota, period = map(int, " ".join(texts).split())
            if quota > 0 and period > 0:
                return quota / period
    return math.inf


THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables of the environment by which people set the number of threads; it is then kept."""


def threads_are_set() -> bool:
    """Return whether the user has set the number of threads."""
    return any(os.environ.get(name) for name in THREAD_SETTINGS)
