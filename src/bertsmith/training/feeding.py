"""Where batches come from: drawn in this process, or ahead of time in several others.

Batches are a pure function of the place in the data, so each of N processes walks along the places
by itself and draws every N-th batch; this one reads from them in turn, and the order is the same
whatever N is. Where training goes on at another place than the last batch ended, all are sent there
and what they had drawn is dropped.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Protocol, runtime_checkable

from bertsmith.batches.batch import Batch
from bertsmith.batches.pretraining import Place
from bertsmith.errors import UserError, WorkerDied
from bertsmith.training.loader import Drawn, Failed, Told, Walk, take_own

_IGNORED = {signal.SIGINT, signal.SIGTERM}


class BatchSource(Protocol):
    """Where batches come from: a pure function of the place in the data."""

    def take(self, place: Place) -> tuple[Batch, Place]:
        """The batch that begins at a place, and the place after it."""
        ...


@runtime_checkable
class WalkableSource(BatchSource, Protocol):
    """A source that other processes can draw from; it must be possible to pickle it."""

    def after(self, place: Place) -> Place:
        """The place after the batch that begins at a place, for little."""
        ...


class Feed:
    """Draws the batches of a step in this process.

    Of `ranks` processes that train together, this one being `rank`, each draws every so-manyth.
    """

    def __init__(self, batches: BatchSource, rank: int = 0, ranks: int = 1) -> None:
        self._batches = batches
        self._rank, self._ranks = rank, ranks

    def draw(self, place: Place, count: int) -> tuple[list[Batch], Place]:
        """Its `count` batches from a place on, and the place after those of all ranks."""
        drawn = []
        for _ in range(count):
            batch, place = self._take(place)
            drawn.append(batch)
        return drawn, place

    def _take(self, place: Place) -> tuple[Batch, Place]:
        if self._ranks == 1:
            return self._batches.take(place)
        assert isinstance(self._batches, WalkableSource)
        return take_own(self._batches, place, self._rank, self._ranks)


class _Worker:
    """A process that draws batches; it ends when this one does."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # the process inherits this: Ctrl-C is for its parent to answer, which may want more batches
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._connection = Connection(ours.detach())

    def tell(self, message: object) -> None:
        """Send a message; raises `WorkerDied`."""
        try:
            self._connection.send_bytes(pickle.dumps(message))
        except OSError as error:
            raise self._died() from error

    def hear(self) -> Told:
        """The next message; raises `WorkerDied`, or what went wrong over there."""
        try:
            told: Told = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._died() from error
        if isinstance(told, Failed):
            if told.user_error is None:
                raise RuntimeError(f"a process that draws batches has failed:\n{told.traceback}")
            kind, what, where, line, remedy = told.user_error
            raise kind(what, where=where, line=line, remedy=remedy)
        return told

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _died(self) -> UserError:
        self._process.kill()
        status = self._process.wait()
        return WorkerDied(
            f"a process that draws batches has died (status {status}), perhaps for want of memory",
            remedy="give the same command again with fewer --workers: it goes on",
        )


class _WorkerFeed(Feed):
    """Draws the batches of a step from several processes, in the order of one."""

    def __init__(self, batches: BatchSource, workers: list[_Worker], rank: int, ranks: int) -> None:
        super().__init__(batches, rank, ranks)
        self._workers = workers
        self._walk = 0
        self._turn = 0
        self._next: Place | None = None

    def _take(self, place: Place) -> tuple[Batch, Place]:
        if place != self._next:
            self._go_to(place)
        told = self._workers[self._turn].hear()
        while not isinstance(told, Drawn) or told.walk != self._walk:
            told = self._workers[self._turn].hear()
        assert told.place == place, (told.place, place)
        self._turn = (self._turn + 1) % len(self._workers)
        self._next = told.after
        return told.batch, told.after

    def _go_to(self, place: Place) -> None:
        self._walk += 1
        self._turn = 0
        for first, worker in enumerate(self._workers):
            stride = len(self._workers)
            worker.tell(Walk(self._walk, place, first, stride, self._rank, self._ranks))


@contextmanager
def feeding(
    batches: BatchSource, workers: int, *, ahead: int = 1, rank: int = 0, ranks: int = 1
) -> Iterator[Feed]:
    """A feed that draws in so many other processes, each up to `ahead` batches too early, or here.

    With several `ranks` the batches of this one, as `Feed` has it. Raises `WorkerDied`, also from
    `draw`.
    """
    if not workers:
        yield Feed(batches, rank, ranks)
        return
    assert isinstance(batches, WalkableSource)
    started: list[_Worker] = []
    try:
        for _ in range(workers):
            started.append(_Worker())
        for worker in started:
            # the path first, as nothing of ours can be found without it
            worker.tell(sys.path)
            worker.tell((pickle.dumps(batches), ahead))
        for worker in started:
            worker.hear()
        yield _WorkerFeed(batches, started, rank, ranks)
    finally:
        for worker in started:
            worker.close()


_PROGRAM = """
import ctypes, os, pickle, signal, sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
if sys.platform.startswith("linux"):
    # it would notice by itself that its parent is gone, but only when all is imported
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[2]):
    sys.exit()
try:
    sys.path[:] = pickle.loads(connection.recv_bytes())
except (EOFError, OSError):
    sys.exit()
from bertsmith.training.loader import serve
serve(connection)
"""
