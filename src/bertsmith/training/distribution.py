"""Several processes (ranks) train one model: who they are, what they tell each other, how they end.

`torchrun` starts the same command in every process and puts each one's number into the environment.
All read the same store of tokens and share the run's folder; rank 0 alone writes there and talks.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from bertsmith.errors import ConfigError, RankLost, UserError
from bertsmith.log import console
from bertsmith.signals import ending_status
from bertsmith.training.interruption import Interrupted, interruptions
from bertsmith.training.watching import RankWatch, wait_for

# gloo and NCCL give up by themselves after this; what is lost is found in seconds by `RankWatch`
_STUCK = timedelta(minutes=10)
# how long a failed operation may wait for the news of who has gone
_NEWS_SECONDS = 5.0

_joined = itertools.count()


class EndedElsewhere(SystemExit):
    """The run has ended and another rank has told why: this one leaves without a word."""


@dataclass(frozen=True, kw_only=True)
class World:
    """The ranks that train one model together; as it is, this process alone.

    With `shard` each has a share of every parameter, else all of them.
    """

    rank: int = 0
    size: int = 1
    shard: bool = False
    store: Any = None
    watch: RankWatch | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and talks."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """The sum over all ranks of each value, in float64; the same on every rank."""
        if self.size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(total)
        return [float(value) for value in total.tolist()]

    def any(self, flag: bool) -> bool:
        """Whether it holds on some rank."""
        return self.sum([float(flag)])[0] > 0

    def of_first(self, value: float) -> float:
        """Rank 0's value."""
        return self.sum([value if self.first else 0.0])[0]

    def told(self, make: Callable[[], Any]) -> Any:  # noqa: ANN401
        """What rank 0 makes, a JSON value, however long it takes; the others wait for it.

        What it raises there ends the run; the others leave.
        """
        if self.size == 1:
            return make()
        assert self.watch is not None
        key = self.new_name("told")
        if self.first:
            made = make()
            self.store.set(key, json.dumps(made))
            return made
        found = wait_for(self.store, key, self.watch)
        if not found:
            raise RankLost(self.watch.cause)
        return json.loads(found)

    def new_name(self, kind: str) -> str:
        """A name that no other thing of this world has, the same on every rank."""
        return f"{kind}/{next(self._numbers)}"

    @contextmanager
    def interruptions(self) -> Iterator[Callable[[], bool]]:
        """Turn Ctrl-C or SIGTERM into a request; all ranks ask together whether any has one."""
        with interruptions() as requests:
            yield lambda: self.any(requests.asked())

    def share(self, batches: int) -> int:
        """The batches of a step that are each rank's; `ConfigError` if they cannot be equal."""
        if batches % self.size:
            fitting = [str(size) for size in range(1, batches + 1) if batches % size == 0]
            raise ConfigError(
                f"{self.size} processes cannot share steps of {batches} batches evenly",
                remedy=f"start {' or '.join(fitting[-8:])}",
            )
        return batches // self.size

    def place(self, device: torch.device) -> torch.device:
        """This rank's device, of those of a kind; `ConfigError` when all are to take the same."""
        if self.size > 1 and device.index is not None:
            raise ConfigError(
                f"{device} is one GPU for {self.size} processes", remedy="say --device cuda"
            )
        return device

    def wait_for_first(self) -> None:
        """Go on when rank 0 has come here, however long it takes."""
        self.told(lambda: None)

    def wait(self) -> None:
        """Go on when every rank has come here."""
        self.any(False)


ALONE = World()
"""One process, which is all there is."""


@contextmanager
def joined(*, shard: bool = False) -> Iterator[World]:
    """The world that torchrun's environment describes; this process alone where there is none.

    Raises `ConfigError` when one process is to hold shares, `RankLost` on one rank when another one
    is lost, `EndedElsewhere` on those that need not tell it.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        if shard:
            raise ConfigError(
                "one process has nobody to share with",
                remedy="start several: torchrun --nproc-per-node 2 -m bertsmith pretrain ...",
            )
        yield ALONE
        return
    world = _join(shard)
    quiet, console.quiet = console.quiet, not world.first
    try:
        yield world
        world.wait()
    except BaseException as error:
        ending = _end(world, error)
        if ending is error:
            raise
        raise ending from error
    else:
        assert world.watch is not None
        world.watch.leave()
        distributed.destroy_process_group()
    finally:
        console.quiet = quiet


def _join(shard: bool) -> World:
    place = int(os.environ["LOCAL_RANK"])
    backend = "gloo"
    if torch.cuda.is_available():
        if place >= torch.cuda.device_count():
            raise ConfigError(
                f"rank {os.environ['RANK']} is number {place} on a machine with "
                f"{torch.cuda.device_count()} GPUs",
                remedy="start one process a GPU (--nproc-per-node)",
            )
        torch.cuda.set_device(place)
        # what ranks tell each other stays on the processors and waits for no GPU
        backend = "cpu:gloo,cuda:nccl"
    store, rank, size = next(iter(rendezvous("env://")))
    store = PrefixStore(f"bertsmith/{next(_joined)}", store)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_STUCK)
    return World(rank=rank, size=size, shard=shard, store=store, watch=RankWatch(store, rank, size))


def _end(world: World, error: BaseException) -> BaseException:
    """What this rank raises in place of an error: somebody has to tell the cause, once."""
    watch = world.watch
    assert watch is not None
    ours = isinstance(error, UserError | KeyboardInterrupt)
    if isinstance(error, Interrupted):
        # all have stopped together; whoever leaves first must not be missed
        watch.leave()
        return error if world.first else EndedElsewhere(ending_status())
    if not watch.known(0 if ours else _NEWS_SECONDS):
        watch.fail(f"rank {world.rank} has failed: {str(error) or type(error).__name__}")
        return error if watch.told_here else EndedElsewhere(1)
    return RankLost(watch.cause) if watch.told_here else EndedElsewhere(1)
