"""What goes wrong in another process is told here as it was there."""

from __future__ import annotations

import errno
import pickle
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from bertsmith.core.errors import DiskError, StoreError, WorkerDied
from bertsmith.training import processes
from bertsmith.training.processes import Worker, WorkerFailure, describe_failure, receive

OOM_SCORE = Path("/proc/self/oom_score_adj")


class Repeating(Worker):
    """A process that sends back what it is sent."""

    def __init__(self) -> None:
        super().__init__(repeat)

    def died(self, status: int) -> WorkerDied:
        return WorkerDied(f"ended with {status}")


def repeat(connection: Connection) -> None:
    connection.send_bytes(pickle.dumps(receive(connection)))


@pytest.mark.parametrize(("ahead", "version"), [(0, ""), (1, "a later"), (-1, "an earlier")])
def test_messages_of_another_version_are_refused_by_name(
    ahead: int, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MESSAGES", processes.MESSAGES + ahead)
    worker = Repeating()
    try:
        worker.send("to be said again")
        if version:
            with pytest.raises(
                WorkerDied,
                match=rf"this process is of {version} version of bertsmith; give the same",
            ):
                worker.receive()
        else:
            assert worker.receive() == "to be said again"
    finally:
        worker.close()


class Scored(Worker):
    """A process that sends the number that Linux adds to its share of memory."""

    def __init__(self) -> None:
        super().__init__(score)

    def died(self, status: int) -> WorkerDied:
        return WorkerDied(f"ended with {status}")


def score(connection: Connection) -> None:
    connection.send_bytes(pickle.dumps(OOM_SCORE.read_text(encoding="ascii")))


@pytest.mark.skipif(not OOM_SCORE.exists(), reason="no such file on this system")
def test_a_process_that_works_is_ended_before_its_parent_when_memory_runs_out() -> None:
    worker = Scored()
    try:
        own = int(OOM_SCORE.read_text(encoding="ascii"))
        assert int(worker.receive()) == min(own + 500, 1000)
    finally:
        worker.close()


def sent(error: Exception) -> Exception:
    """What comes out here of what is raised there."""
    try:
        raise error
    except Exception as raised:
        told = pickle.loads(pickle.dumps(describe_failure(raised)))
    assert isinstance(told, WorkerFailure)
    return told.to_exception()


def test_a_mistake_of_the_user_keeps_all_it_says() -> None:
    said = StoreError("is damaged", where=Path("store"), line=3, remedy="make it again")
    again = sent(said)
    assert type(again) is StoreError
    assert str(again) == str(said) == "store:3: is damaged; make it again"


def test_a_full_disk_is_known_as_one() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "log.jsonl")
    said = DiskError("the disk is full", where="log.jsonl", remedy="free some space")
    said.__cause__ = full
    again = sent(said)
    assert type(again) is DiskError
    assert isinstance(again.__cause__, OSError)
    assert again.__cause__.errno == errno.ENOSPC
    alone = sent(full)
    assert isinstance(alone, OSError)
    assert (alone.errno, alone.filename) == (errno.ENOSPC, "log.jsonl")


def test_of_a_bug_the_place_is_told() -> None:
    again = sent(IndexError("seven"))
    assert type(again) is RuntimeError
    with pytest.raises(
        RuntimeError, match=r"(?s)has failed:.*test_processes.py.*IndexError: seven"
    ):
        raise again
