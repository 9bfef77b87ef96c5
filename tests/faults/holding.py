"""The command line, held before a step until it is asked to end.

    python -m faults.holding STEP COMMAND...

A process that is held has touched `held-RANK` in the working folder. Steps are counted from 1, in
this process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from bertsmith.batches import DataPosition
from bertsmith.cli import main as cli
from bertsmith.network.batch import Batch
from bertsmith.training.loading import Feed


def hold() -> None:
    """Wait for a request to end, which is then handled as ever."""
    asked = threading.Event()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        handle = handlers[signal.Signals(number)]
        assert callable(handle)
        handle(number, frame)
        asked.set()

    for number in handlers:
        signal.signal(number, ask)
    Path(f"held-{os.environ.get('RANK', '0')}").touch()
    while not asked.wait(0.01):
        pass
    for number, handle in handlers.items():
        signal.signal(number, handle)


def main() -> None:
    """Run the command."""
    draw, left = Feed.next_batches, [int(sys.argv[1])]

    def held(feed: Feed, place: DataPosition, count: int) -> tuple[list[Batch], DataPosition]:
        left[0] -= 1
        if left[0] == 0:
            hold()
        return draw(feed, place, count)

    Feed.next_batches = held  # type: ignore[assignment,method-assign]
    sys.exit(cli.main(sys.argv[2:]))


if __name__ == "__main__":
    main()
