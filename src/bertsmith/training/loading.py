"""Batch loading: in this process, or prefetched by several worker processes.

Batches are a pure function of the position in the data, so each of N workers iterates over the
positions alone and makes every N-th batch; this process reads from them in turn, and the order
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
from bertsmith.training.distribution import ALONE, World
from bertsmith.training.processes import ConnectionLost, Worker, describe_failure, pickled, receive


class BatchSource(Protocol):
    """A source of batches, which are a pure function of the position in the data."""

    def next_batch(self, position: DataPosition) -> tuple[Batch, DataPosition]:
        """Return the batch at a position, and the position after it."""
        ...


@runtime_checkable
class SkippableSource(BatchSource, Protocol):
    """A source that worker processes can read from; it must be picklable."""

    def after(self, position: DataPosition) -> DataPosition:
        """Return the position after the batch at a position, cheaply."""
        ...


class LoadRequest(NamedTuple):
    """A request to load from a position: the group number `first` and every `stride`-th after it.

    A group is one batch for each of `ranks`; the worker makes that of `rank`.
    """

    request: int
    position: DataPosition
    first: int
    stride: int
    rank: int
    ranks: int


class Ready(NamedTuple):
    """The worker is ready for requests."""


class LoadedBatch(NamedTuple):
    """The batch of a request, with the position of its group and the position after it."""

    request: int
    position: DataPosition
    batch: Batch
    after: DataPosition


def serve(connection: Connection) -> None:
    """Make the batches that the process at the other end requests, until it exits."""
    pickled_source, ahead = receive(connection)
    waiting: queue.Queue[bytes] = queue.Queue(ahead)
    threading.Thread(target=_send, args=(connection, waiting), daemon=True).start()
    try:
        source: SkippableSource = pickle.loads(pickled_source)
        torch.set_num_threads(1)
        waiting.put(pickled(Ready()))
        _load_batches(connection, source, waiting)
    except ConnectionLost:
        raise
    except Exception as error:
        waiting.put(pickled(describe_failure(error)))
        receive(connection)  # until the other end closes


def _load_batches(
    connection: Connection, source: SkippableSource, waiting: queue.Queue[bytes]
) -> None:
    while True:
        request: LoadRequest = receive(connection)
        position = _skip(source, request.position, request.first * request.ranks)
        while not connection.poll():
            batch, after = batch_of_rank(source, position, request.rank, request.ranks)
            waiting.put(pickled(LoadedBatch(request.request, position, batch, after)))
            position = _skip(source, after, (request.stride - 1) * request.ranks)


def batch_of_rank(
    source: SkippableSource, position: DataPosition, rank: int, ranks: int
) -> tuple[Batch, DataPosition]:
    """Return one rank's batch of the next group, and the position after the group."""
    batch, after = source.next_batch(_skip(source, position, rank))
    return batch, _skip(source, after, ranks - 1 - rank)


def _skip(source: SkippableSource, position: DataPosition, batches: int) -> DataPosition:
    for _ in range(batches):
        position = source.after(position)
    return position


def _send(connection: Connection, waiting: queue.Queue[bytes]) -> None:
    try:
        while True:
            connection.send_bytes(waiting.get())
    except OSError:
        os._exit(0)


class Feed:
    """Loads the batches of a step in this process; of several ranks each loads its share."""

    def __init__(self, batches: BatchSource, world: World) -> None:
        self._batches = batches
        self._world = world

    def next_batches(self, position: DataPosition, count: int) -> tuple[list[Batch], DataPosition]:
        """Return this rank's next `count` batches, and the position after those of all ranks."""
        batches = []
        for _ in range(count):
            batch, position = self._next_batch(position)
            batches.append(batch)
        return batches, position

    def _next_batch(self, position: DataPosition) -> tuple[Batch, DataPosition]:
        if self._world.size == 1:
            return self._batches.next_batch(position)
        assert isinstance(self._batches, SkippableSource)
        return batch_of_rank(self._batches, position, self._world.rank, self._world.size)


class _LoadingWorker(Worker):
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

    def __init__(self, batches: BatchSource, world: World, workers: list[_LoadingWorker]) -> None:
        super().__init__(batches, world)
        self._workers = workers
        self._request = 0
        self._turn = 0
        self._next: DataPosition | None = None

    def _next_batch(self, position: DataPosition) -> tuple[Batch, DataPosition]:
        if position != self._next:
            self._seek(position)
        message = self._workers[self._turn].receive()
        while not isinstance(message, LoadedBatch) or message.request != self._request:
            message = self._workers[self._turn].receive()
        assert message.position == position, (message.position, position)
        self._turn = (self._turn + 1) % len(self._workers)
        self._next = message.after
        return message.batch, message.after

    def _seek(self, position: DataPosition) -> None:
        self._request += 1
        self._turn = 0
        rank, ranks = self._world.rank, self._world.size
        for first, worker in enumerate(self._workers):
            stride = len(self._workers)
            worker.send(LoadRequest(self._request, position, first, stride, rank, ranks))


@contextmanager
def open_feed(
    batches: BatchSource, workers: int, world: World = ALONE, *, ahead: int = 1
) -> Iterator[Feed]:
    """Yield a feed with `workers` processes that prefetch up to `ahead` batches each, or without.

    Of a world of several ranks it loads the batches of this one. Raises `WorkerDied`, also from
    `next_batches`.
    """
    if not workers:
        yield Feed(batches, world)
        return
    assert isinstance(batches, SkippableSource)
    started: list[_LoadingWorker] = []
    try:
        for _ in range(workers):
            started.append(_LoadingWorker())
        for worker in started:
            worker.send((pickle.dumps(batches), ahead))
        for worker in started:
            worker.receive()
        yield _WorkerFeed(batches, world, started)
    finally:
        for worker in started:
            worker.close()
