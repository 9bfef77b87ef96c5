"""Batch loading: in this process, or prefetched by several worker processes.

Batches are a pure function of the position in the data, so each of N workers iterates over the
positions by itself and makes every N-th batch; this process reads from them in turn, and the order
is independent of N. If training continues at another position than the end of the last batch, all
workers are sent there and their prefetched batches are dropped.
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

from bertsmith.batches import DataPosition
from bertsmith.core.errors import WorkerDied
from bertsmith.network.batch import Batch
from bertsmith.training.processes import Gone, Worker, failure, pickled, receive


class BatchSource(Protocol):
    """A source of batches, which are a pure function of the position in the data."""

    def next_batch(self, place: DataPosition) -> tuple[Batch, DataPosition]:
        """Return the batch at a position, and the position after it."""
        ...


@runtime_checkable
class WalkableSource(BatchSource, Protocol):
    """A source that worker processes can read from; it must be picklable."""

    def after(self, place: DataPosition) -> DataPosition:
        """Return the position after the batch at a position, cheaply."""
        ...


class Walk(NamedTuple):
    """A request to load from a position: the group number `first` and every `stride`-th after it.

    A group is one batch for each of `ranks`; the worker makes that of `rank`.
    """

    walk: int
    place: DataPosition
    first: int
    stride: int
    rank: int
    ranks: int


class Ready(NamedTuple):
    """The worker is ready for requests."""


class Drawn(NamedTuple):
    """A batch of a walk, with the position of its group and the position after it."""

    walk: int
    place: DataPosition
    batch: Batch
    after: DataPosition


def serve(connection: Connection) -> None:
    """Make the batches that the process at the other end requests, until it exits."""
    walked, ahead = receive(connection)
    waiting: queue.Queue[bytes] = queue.Queue(ahead)
    threading.Thread(target=_send, args=(connection, waiting), daemon=True).start()
    try:
        source: WalkableSource = pickle.loads(walked)
        torch.set_num_threads(1)
        waiting.put(pickled(Ready()))
        _draw(connection, source, waiting)
    except Gone:
        raise
    except Exception as error:
        waiting.put(pickled(failure(error)))
        receive(connection)  # until the other end closes


def _draw(connection: Connection, source: WalkableSource, waiting: queue.Queue[bytes]) -> None:
    while True:
        walk: Walk = receive(connection)
        place = _skip(source, walk.place, walk.first * walk.ranks)
        while not connection.poll():
            batch, after = take_own(source, place, walk.rank, walk.ranks)
            waiting.put(pickled(Drawn(walk.walk, place, batch, after)))
            place = _skip(source, after, (walk.stride - 1) * walk.ranks)


def take_own(
    source: WalkableSource, place: DataPosition, rank: int, ranks: int
) -> tuple[Batch, DataPosition]:
    """Return one rank's batch of the next group, and the position after the group."""
    batch, after = source.next_batch(_skip(source, place, rank))
    return batch, _skip(source, after, ranks - 1 - rank)


def _skip(source: WalkableSource, place: DataPosition, batches: int) -> DataPosition:
    for _ in range(batches):
        place = source.after(place)
    return place


def _send(connection: Connection, waiting: queue.Queue[bytes]) -> None:
    try:
        while True:
            connection.send_bytes(waiting.get())
    except OSError:
        os._exit(0)


class Feed:
    """Loads the batches of a step in this process.

    Of `ranks` processes that train together, this one (`rank`) loads every `ranks`-th batch.
    """

    def __init__(self, batches: BatchSource, rank: int = 0, ranks: int = 1) -> None:
        self._batches = batches
        self._rank, self._ranks = rank, ranks

    def draw(self, place: DataPosition, count: int) -> tuple[list[Batch], DataPosition]:
        """Return this rank's next `count` batches, and the position after those of all ranks."""
        drawn = []
        for _ in range(count):
            batch, place = self._take(place)
            drawn.append(batch)
        return drawn, place

    def _take(self, place: DataPosition) -> tuple[Batch, DataPosition]:
        if self._ranks == 1:
            return self._batches.next_batch(place)
        assert isinstance(self._batches, WalkableSource)
        return take_own(self._batches, place, self._rank, self._ranks)


class _Drawer(Worker):
    """A worker process that loads batches."""

    def __init__(self) -> None:
        super().__init__(serve)

    def died(self, status: int) -> WorkerDied:
        """Return the error for a worker that has died."""
        return WorkerDied(
            f"a process that loads batches has died (status {status}), perhaps out of memory",
            remedy="run the same command again with fewer --workers: it continues",
        )


class _WorkerFeed(Feed):
    """Loads the batches of a step from several workers, in the order of a single one."""

    def __init__(self, batches: BatchSource, workers: list[_Drawer], rank: int, ranks: int) -> None:
        super().__init__(batches, rank, ranks)
        self._workers = workers
        self._walk = 0
        self._turn = 0
        self._next: DataPosition | None = None

    def _take(self, place: DataPosition) -> tuple[Batch, DataPosition]:
        if place != self._next:
            self._go_to(place)
        message = self._workers[self._turn].hear()
        while not isinstance(message, Drawn) or message.walk != self._walk:
            message = self._workers[self._turn].hear()
        assert message.place == place, (message.place, place)
        self._turn = (self._turn + 1) % len(self._workers)
        self._next = message.after
        return message.batch, message.after

    def _go_to(self, place: DataPosition) -> None:
        self._walk += 1
        self._turn = 0
        for first, worker in enumerate(self._workers):
            stride = len(self._workers)
            worker.tell(Walk(self._walk, place, first, stride, self._rank, self._ranks))


@contextmanager
def feeding(
    batches: BatchSource, workers: int, *, ahead: int = 1, rank: int = 0, ranks: int = 1
) -> Iterator[Feed]:
    """Yield a feed with `workers` processes that prefetch up to `ahead` batches each, or without.

    With several `ranks` it loads the batches of this one, as `Feed` does. Raises `WorkerDied`, also
    from `draw`.
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
