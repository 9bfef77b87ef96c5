"""A server that forks what a forked process starts itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forking import Server, _end_after, _named, _with_server


def fork_own_server(folder: Path) -> Callable[[], None]:
    """Fork the workers of this process, and its `Forked`, from it as it is now; returns the end.

    It must have no threads yet. The processes that are asked for begin and end within this call.
    """
    before = Server(os.getpid(), str(folder / "socket"), dict(os.environ))
    named = set(_named(os.environ))
    base = [item for item in sys.path[1:] if item not in named]
    # comes back here; a worker gets its request
    here: Any = object()
    asked, end = _with_server(here, before)
    if asked is not here:
        _end_after(asked, base, end)
    return end
