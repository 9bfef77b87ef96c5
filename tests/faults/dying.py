"""The command line, cut off without warning at one of the moments in which it touches the disk.

    python dying.py MOMENT[:SIGNAL] COMMAND...

Writes stop halfway at their moment; files are small, so that there are many. Moments are counted in
the whole program from 1; one beyond the last lets the command end well. With the number of a signal
the command and its processes get that, as from a terminal, and nothing is cut off. Where the
environment has FORK_POOLS, the processes of a pool are forked rather than started, in no time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bertsmith.cli import main as cli
from bertsmith.core import files as disk
from bertsmith.core import pool
from bertsmith.core.files import write_all
from bertsmith.store import duplicates, preparing, unfinished, writing
from bertsmith.text.corpus import sections

FORK_POOLS = "FORK_POOLS"


class Moments:
    """Counts moments, and ends the process, or sends a signal, at one of them."""

    def __init__(self, last: int, number: int = 0) -> None:
        self._last, self._number = last, number
        self.passed = 0

    def pass_one(self) -> bool:
        """Whether this is the moment to die."""
        self.passed += 1
        if self.passed == self._last and self._number:
            os.killpg(0, self._number)
        return self.passed == self._last and not self._number

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, or the end."""

        def dying(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            if self.pass_one():
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return dying

    def write_all(self, file: FileIO, data: bytes | memoryview) -> None:
        """Write it whole, or half of it and no more of anything."""
        if self.pass_one():
            write_all(file, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write_all(file, data)


def main() -> None:
    """Run the command."""
    moments = Moments(*map(int, sys.argv[1].split(":")))
    sections.SECTION_BYTES = preparing.GROUP_BYTES = 4_000
    unfinished.COMMIT_GROUPS = 3
    # several shards
    defaults = writing.StoreWriter.__init__.__kwdefaults__
    assert defaults is not None
    defaults["shard_bytes"] = 20_000
    for module in (disk, duplicates, unfinished):
        module.write_all = moments.write_all  # type: ignore[attr-defined]
    disk.flush_to_disk = unfinished.flush_to_disk = moments.before(disk.flush_to_disk)  # type: ignore[attr-defined]
    Path.replace = moments.before(Path.replace)  # type: ignore[method-assign]
    unfinished.shutil.rmtree = moments.before(unfinished.shutil.rmtree)  # type: ignore[attr-defined]
    if FORK_POOLS in os.environ:
        forking = SimpleNamespace(
            get_context=lambda _: multiprocessing.get_context("fork"),
            parent_process=multiprocessing.parent_process,
        )
        setattr(pool, "multiprocessing", forking)  # noqa: B010
    status = cli.main(sys.argv[2:])
    print("moments:", moments.passed)
    sys.exit(status)


if __name__ == "__main__":
    main()
