"""The command line, interrupted right after a pool has started its first process.

    python starting.py COMMAND...

As where another thread receives Ctrl-C: the signal is not blocked there.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor

from bertsmith.cli import main as cli


def main() -> None:
    """Run the command."""
    start = ProcessPoolExecutor._spawn_process  # type: ignore[attr-defined]

    def interrupted(pool: ProcessPoolExecutor) -> None:
        start(pool)
        os.killpg(0, signal.SIGINT)
        _thread.interrupt_main(signal.SIGINT)

    ProcessPoolExecutor._spawn_process = interrupted  # type: ignore[attr-defined]
    sys.exit(cli.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
