"""What is flushed to the disk and what takes its name, in the order in which it happens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

Events = list[tuple[str, Path]]
"""Pairs of "flushed" or "named" and a path, that of the new name."""


def disk_events(patch: pytest.MonkeyPatch) -> Events:
    """Return a list to which events are appended from now on."""
    events: Events = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def flushed(handle: int) -> None:
        fsync(handle)
        events.append(("flushed", Path(os.readlink(f"/proc/self/fd/{handle}"))))

    def renamed(old: Path, new: Path) -> None:
        rename(old, new)
        events.append(("named", Path(new)))

    def replaced(old: Path, new: Path) -> None:
        replace(old, new)
        events.append(("named", Path(new)))

    patch.setattr(os, "fsync", flushed)
    patch.setattr(os, "rename", renamed)
    patch.setattr(os, "replace", replaced)
    return events
