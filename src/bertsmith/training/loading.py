"""Where batches come from: drawn in this process, or ahead of time in several others.

Batches are a pure function of the place in the data, so each of N processes walks along the places
by itself and draws every N-th batch; this one reads from them in turn, and the order is the same
whatever N is. Where training goes on at another place than the last batch ended, all are sent there
and what they had drawn is dropped.
"""

from __future__ import annotations

import os
import pickle
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from bertsmith.batches.pretraining import Place
from bertsmith.core.errors import WorkerDied
from bertsmith.network.batch import Batch
from bertsmith.training.processes import Gone, Worker, failure, pickled, receive


class _Source(Protocol):
    def take(self, place: Place) -> tuple[Batch, Place]: ...

    def after(self, place: Place) -> Place: ...


class Walk(NamedTuple):
    """Where to draw from now on: from a place, the group number `first` and every `stride`-th.

    A group is a batch for each of `ranks`; drawn is that of `rank`.
    """

    walk: int
    place: Place
    first: int
    stride: int
    rank: int
    ranks: int


class Ready(NamedTuple):
    """The process can be sent for a walk."""


class Drawn(NamedTuple):
    """A batch of a walk, with the place that its group begins at and the one after that."""

    walk: int
    place: Place
    batch: Batch
    after: Place


def serve(connection: Connection) -> None:
    """Draw batches as the process at the other end asks for, until it goes."""
    try:
        _serve(connection)
    except Gone:
        pass
    finally:
        # a thread that waits for somebody to read must not hold up the end
        os._exit(0)


def _serve(connection: Connection) -> None:
    walked, ahead = receive(connection)
    waiting: queue.Queue[bytes] = queue.Queue(ahead)
    threading.Thread(target=_send, args=(connection, waiting), daemon=True).start()
    try:
        source: _Source = pickle.loads(walked)
        torch.set_num_threads(1)
        waiting.put(pickled(Ready()))
        _draw(connection, source, waiting)
    except Gone:
        raise
    except Exception as error:
        waiting.put(pickled(failure(error)))
        receive(connection)  # until nobody is there any more


def _draw(connection: Connection, source: _Source, waiting: queue.Queue[bytes]) -> None:
    while True:
        walk: Walk = receive(connection)
        place = _skip(source, walk.place, walk.first * walk.ranks)
        while not connection.poll():
            batch, after = take_own(source, place, walk.rank, walk.ranks)
            waiting.put(pickled(Drawn(walk.walk, place, batch, after)))
            place = _skip(source, after, (walk.stride - 1) * walk.ranks)


def take_own(source: _Source, place: Place, rank: int, ranks: int) -> tuple[Batch, Place]:
    """The batch of one rank among the next ones of all, and the place after those of all."""
    batch, after = source.take(_skip(source, place, rank))
    return batch, _skip(source, after, ranks - 1 - rank)


def _skip(source: _Source, place: Place, batches: int) -> Place:
    for _ in range(batches):
        place = source.after(place)
    return place


def _send(connection: Connection, waiting: queue.Queue[bytes]) -> None:
    try:
        while True:
            connection.send_bytes(waiting.get())
    except OSError:
        os._exit(0)


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


class _Drawer(Worker):
    """A process that draws batches."""

    def __init__(self) -> None:
        super().__init__(serve)

    def died(self, status: int) -> WorkerDied:
        """What there is to say of one that has died."""
        return WorkerDied(
            f"a process that draws batches has died (status {status}), perhaps for want of memory",
            remedy="give the same command again with fewer --workers: it goes on",
        )


class _WorkerFeed(Feed):
    """Draws the batches of a step from several processes, in the order of one."""

    def __init__(self, batches: BatchSource, workers: list[_Drawer], rank: int, ranks: int) -> None:
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
    started: list[_Drawer] = []
    try:
        for _ in range(workers):
            started.append(_Drawer())
        for worker in started:
            worker.tell((pickle.dumps(batches), ahead))
        for worker in started:
            worker.hear()
        yield _WorkerFeed(batches, started, rank, ranks)
    finally:
        for worker in started:
            worker.close()
