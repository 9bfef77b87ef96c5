"""Workers as the process that speaks HTTP sees them, in the event loop in which it runs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

uvloop = pytest.importorskip("uvloop")

from bertsmith.serving.config import ServeConfig  # noqa: E402
from bertsmith.serving.dispatch.workers import (  # noqa: E402
    ForkServer,
    Link,
    Listener,
    WorkerProcess,
)
from bertsmith.serving.messages import Cancel  # noqa: E402
from bertsmith.serving.processes import start_process  # noqa: E402


class Ended:
    """A worker that ends as soon as it is there."""

    settings = (ServeConfig(models=("model",)), 1)

    def make_worker(self, connection: socket.socket) -> None:
        """Close the connection, as the end of a process does."""
        connection.close()


class Exits:
    """A listener that sends a message to each worker that has ended."""

    def __init__(self) -> None:
        self.workers: list[Link] = []

    def on_message(self, worker: Link, message: object) -> None:
        """Nothing is expected."""
        raise AssertionError(message)

    def on_exit(self, worker: Link) -> None:
        """Send it what may be on its way still."""
        self.workers.append(worker)
        worker.send(Cancel((7,)))


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_what_is_sent_to_a_worker_that_has_ended_is_dropped(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    exits = Exits()

    async def run() -> WorkerProcess:
        worker = WorkerProcess(cast("ForkServer", Ended()), cast("Listener", exits), "small")
        await worker.listen()
        worker.send(Cancel((8,)))
        return worker

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert exits.workers == [runner.run(run())]


def test_files_in_the_working_folder_are_no_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A json.py there was run, and the server said that it was short of memory."""
    (tmp_path / "working").mkdir()
    (tmp_path / "working" / "json.py").write_text("raise SystemExit(5)")
    program = "def main(connection): connection.sendall(b'here')"
    (tmp_path / "answering_alone.py").write_text(program)
    monkeypatch.chdir(tmp_path / "working")
    monkeypatch.syspath_prepend(tmp_path)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = start_process("answering_alone", theirs, 1)
        theirs.close()
        assert ours.recv(4) == b"here"
        assert process.wait() == 0
