"""What a process does that draws batches for another."""

from __future__ import annotations

import os
import pickle
import queue
import threading
from multiprocessing.connection import Connection
from typing import NamedTuple, Protocol

import torch

from bertsmith.batches.batch import Batch
from bertsmith.batches.pretraining import Place
from bertsmith.training.processes import Gone, failure, pickled, receive


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
