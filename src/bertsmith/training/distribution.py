"""The ranks of a distributed run, and a watchdog so that none waits forever for a lost one.

A thread in each rank detects within a second when another rank has ended: through a process handle
of the kernel on the same machine, else by heartbeats in the launcher's store. The first rank to
detect it writes the cause into the store and reports it to the user. A rank that still hangs in a
collective operation ten seconds later (NCCL does, gloo fails by itself) is terminated.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import distributed
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from bertsmith.core import VERSION
from bertsmith.core.clock import process_fields
from bertsmith.core.errors import ConfigError, RankLost, UserError
from bertsmith.core.log import console, print_error, say
from bertsmith.core.signals import Interrupted, ending_status, interruptions

_POLL_SECONDS = 1.0
_BEAT_POLLS = 2
_QUIET_POLLS = 10
_SILENT_POLLS = 30
_GRACE_SECONDS = 10.0

_CAUSE = "cause"


class Peer(TypedDict):
    """The location of a rank, and what it runs.

    `machine` differs between containers that do not see each other.
    """

    pid: int
    host: str
    machine: str
    program: str


class RankWatch:
    """One rank's view of the others; `cause` is why the run has to end, empty while none is lost.

    `reported_here` is true on the rank that recorded the cause first, which reports it.
    """

    def __init__(self, store: Any, rank: int, size: int, *, shard: bool = False) -> None:  # noqa: ANN401
        self.cause = ""
        self.reported_here = False
        self._rank = rank
        self._store = store.clone()
        store.set(f"rank/{rank}", json.dumps(_this_peer(shard)))
        self.peers: dict[int, Peer] = {
            other: json.loads(store.get(f"rank/{other}")) for other in range(size)
        }
        self._silent = dict.fromkeys(self._ranks_to_watch(), 0)
        self._beats: dict[int, bytes] = {}
        # each rank listens to the previous one, so that a waiting rank notices one that is stopped
        self._neighbour = (rank - 1) % size
        self._neighbour_beat = b""
        self._quiet = 0
        self._known = threading.Event()
        # this rank's own failure and that of another may be noticed at once, by two threads
        self._recording = threading.Lock()
        self._left = threading.Event()
        self._woken, self._waking = os.pipe()
        self._thread = threading.Thread(target=self._run, name="watching ranks", daemon=True)
        self._thread.start()

    def check_alike(self) -> None:
        """Raise `ConfigError` where ranks run different programs, as on two machines they may."""
        first = self.peers[0]["program"]
        for rank, peer in self.peers.items():
            if peer["program"] != first:
                raise ConfigError(
                    f"{_peer_name(peer, rank)} runs {peer['program']}, and rank 0 {first}",
                    remedy="install the same on all machines, and start the same command on each",
                )

    def has_failed(self, seconds: float) -> bool:
        """Return whether there is a cause to end, waiting for one for at most some seconds."""
        return self._known.wait(seconds)

    def record_failure(self, cause: str) -> None:
        """Record for all ranks why the run has to end, unless another rank already has."""
        with self._recording:
            if self._known.is_set():
                return
            own = first = f"{self._rank} {cause}"
            with suppress(distributed.DistError):
                first = self._store.compare_set(_CAUSE, "", own).decode()
            self.reported_here = first == own
            self.cause = first.partition(" ")[2]
            self._known.set()

    def leave(self) -> None:
        """Stop watching; the other ranks will not treat this rank's exit as a failure."""
        # first: the thread closes the pipe once this rank has left
        os.write(self._waking, b"!")
        self._left.set()
        self._thread.join()
        with suppress(distributed.DistError):
            self._store.set(f"left/{self._rank}", "1")

    def _run(self) -> None:
        handles = self._handles()
        poll = select.poll()
        for handle in (*handles, self._woken):
            poll.register(handle, select.POLLIN)
        polls = 0
        while not self._left.is_set() and not self._known.is_set():
            ended = [handle for handle, _ in poll.poll(1000 * _POLL_SECONDS) if handle in handles]
            for handle in ended:
                poll.unregister(handle)
            polls += 1
            try:
                self._poll([handles[handle] for handle in ended], polls)
            except distributed.DistError:
                with self._recording:
                    # reported by each rank: the store that would decide the first is gone
                    self.cause, self.reported_here = "the launcher of the ranks has gone", True
                    self._known.set()
        if self._known.is_set() and not self._left.wait(_GRACE_SECONDS):
            self._end()
        for handle in (*handles, self._woken, self._waking):
            os.close(handle)

    def _poll(self, ended: list[int], polls: int) -> None:
        """Check whether a rank has ended or recorded a cause."""
        deaths = {rank: _describe_exit(self.peers[rank], rank) for rank in ended}
        if self._store.check([_CAUSE]):
            self.record_failure("")
            return
        for rank, cause in deaths.items():
            if not self._store.check([f"left/{rank}"]):
                self.record_failure(cause)
        if polls % _BEAT_POLLS == 1:
            self._store.set(f"beat/{self._rank}", str(polls))
        for rank in self._silent:
            self._listen(rank)
        self._watch_neighbour()

    def _listen(self, rank: int) -> None:
        """Count polls, not seconds, without a heartbeat: this process may have been stopped too."""
        beat = self._store.get(f"beat/{rank}") if self._store.check([f"beat/{rank}"]) else b""
        self._silent[rank] = 0 if beat != self._beats.get(rank) else self._silent[rank] + 1
        self._beats[rank] = beat
        if self._silent[rank] >= _SILENT_POLLS and not self._store.check([f"left/{rank}"]):
            self.record_failure(
                f"{_peer_name(self.peers[rank], rank)} has sent no heartbeat for 30 seconds"
            )

    def _watch_neighbour(self) -> None:
        """Report when the previous rank stops sending heartbeats, and when it continues."""
        rank, before = self._neighbour, self._quiet
        key = f"beat/{rank}"
        beat = self._store.get(key) if self._store.check([key]) else b""
        self._quiet = 0 if beat != self._neighbour_beat else before + 1
        self._neighbour_beat = beat
        name = _peer_name(self.peers[rank], rank)
        if before >= _QUIET_POLLS and self._quiet == 0:
            self._report(f"{name} is running again")
        elif self._quiet == _QUIET_POLLS and not self._store.check([f"left/{rank}"]):
            pid, own = self.peers[rank]["pid"], self.peers[self._rank]
            same_machine = self.peers[rank]["machine"] == own["machine"]
            stopped = same_machine and "".join(process_fields(pid)[:1]) in ("T", "t")
            reason = f"it is stopped, kill -CONT {pid} resumes it" if stopped else "waiting for it"
            self._report(f"{name} has sent no heartbeat for {_QUIET_POLLS} seconds: {reason}")

    def _report(self, line: str) -> None:
        """Print a line on any rank: rank 0, which usually prints, may be the silent one."""
        if self._rank == 0:
            say(line)
        else:
            print_error(line)

    def _ranks_to_watch(self) -> list[int]:
        """Return the ranks on other machines to listen to: all of them on rank 0, else rank 0."""
        own = self.peers[self._rank]
        distant = [rank for rank, peer in self.peers.items() if peer["machine"] != own["machine"]]
        return distant if self._rank == 0 else [rank for rank in distant if rank == 0]

    def _handles(self) -> dict[int, int]:
        """Return handles of the other ranks' processes on this machine, with their ranks."""
        own = self.peers[self._rank]
        handles = {}
        for rank, peer in self.peers.items():
            if rank != self._rank and peer["machine"] == own["machine"]:
                try:
                    handles[os.pidfd_open(peer["pid"])] = rank
                except (OSError, AttributeError):
                    # gone already, or a system without such handles: heartbeats are used instead
                    self._silent[rank] = 0
        return handles

    def _end(self) -> None:
        if self.reported_here:
            print_error(self.cause)
        os._exit(2)


def wait_for(store: Any, key: str, watch: RankWatch) -> str:  # noqa: ANN401
    """Return the value that another rank stores under a key, "" once there is a cause to end."""
    pause = 0.001
    while not watch.has_failed(pause):
        # the store's own wait warns on standard error after a long time
        if store.check([key]):
            return str(store.get(key).decode())
        pause = min(2 * pause, _POLL_SECONDS)
    return ""


def _this_peer(shard: bool = False) -> Peer:
    host = socket.gethostname()
    machine = host
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        machine = f"{host} {boot} {Path('/proc/self/ns/pid').readlink()}"
    version = str(torch.__version__)
    if not torch.cuda.is_available():
        # builds with CUDA and without compute the same on processors
        version = version.partition("+")[0]
    program = f"bertsmith {VERSION}, torch {version}{', --shard' if shard else ''}"
    return Peer(pid=os.getpid(), host=host, machine=machine, program=program)


def _peer_name(peer: Peer, rank: int) -> str:
    return f"rank {rank} (pid {peer['pid']} on {peer['host']})"


def _describe_exit(peer: Peer, rank: int) -> str:
    """Describe how a process on this machine has ended, if its parent has not reaped it yet."""
    name, status = _peer_name(peer, rank), 0
    with suppress(ValueError, IndexError):
        # field 52 is the status in the form of waitpid
        status = int(process_fields(peer["pid"])[49])
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # those of real time have no name
        known = number in set(signal.Signals)
        return f"{name} was killed by signal {number}" + (
            f" ({signal.Signals(number).name})" if known else ""
        )
    if os.WEXITSTATUS(status):
        return f"{name} ended with status {os.WEXITSTATUS(status)}"
    return f"{name} was killed or has crashed"


# gloo and NCCL time out after this; `RankWatch` detects lost ranks within seconds
_STUCK = timedelta(minutes=10)
# how long a failed operation may wait to learn which rank is lost
_NEWS_SECONDS = 5.0

# what the launcher tells each rank, beside WORLD_SIZE
_VARIABLES = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_LAUNCH = "start the processes with torchrun, or one without WORLD_SIZE"

_joined = itertools.count()


class ReportedElsewhere(SystemExit):
    """The run has ended and another rank reports why: this one exits silently."""


@dataclass(frozen=True, kw_only=True)
class World:
    """The ranks that train one model together; by default this process alone.

    With `shard` each rank holds a shard of every parameter, else all of them.
    """

    rank: int = 0
    size: int = 1
    local_size: int = 1
    """Ranks on this machine."""
    shard: bool = False
    store: Any = None
    watch: RankWatch | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def first(self) -> bool:
        """Return whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Return the sum of each value over all ranks, in float64, equal on every rank."""
        if self.size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(total)
        return [float(value) for value in total.tolist()]

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank."""
        return self.sum([float(flag)])[0] > 0

    def broadcast_number(self, value: float) -> float:
        """Return rank 0's value."""
        return self.sum([value if self.first else 0.0])[0]

    def broadcast(self, compute: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Return the JSON value that rank 0 makes; the others wait for it without a timeout.

        An exception on rank 0 ends the run; the others exit.
        """
        if self.size == 1:
            return compute()
        assert self.watch is not None
        key = self.new_name("told")
        if self.first:
            value_here = compute()
            self.store.set(key, json.dumps(value_here))
            return value_here
        value = wait_for(self.store, key, self.watch)
        if not value:
            raise RankLost(self.watch.cause)
        return json.loads(value)

    def new_name(self, kind: str) -> str:
        """Return a name that is unique in this world and equal on every rank."""
        return f"{kind}/{next(self._numbers)}"

    @contextmanager
    def interruptions(self) -> Iterator[Callable[[], bool]]:
        """Turn Ctrl-C or SIGTERM into a request; all ranks check together whether any has one."""
        with interruptions() as stop_requested:
            yield lambda: self.any(stop_requested())

    def share(self, batches: int) -> int:
        """Return each rank's number of batches per step; `ConfigError` if they cannot be equal."""
        if batches % self.size:
            fitting = [str(size) for size in range(1, batches + 1) if batches % size == 0]
            raise ConfigError(
                f"{self.size} processes cannot share steps of {batches} batches evenly",
                remedy=f"start {' or '.join(fitting[-8:])}",
            )
        return batches // self.size

    def place(self, device: torch.device) -> torch.device:
        """Return this rank's device; `ConfigError` when all ranks would use the same one."""
        if self.size > 1 and device.index is not None:
            raise ConfigError(
                f"{device} is one GPU for {self.size} processes", remedy="use --device cuda"
            )
        return device

    def wait_for_first(self) -> None:
        """Block until rank 0 has called this, without a timeout."""
        self.broadcast(lambda: None)

    def wait(self) -> None:
        """Block until every rank has called this."""
        self.any(False)


ALONE = World()
"""The world of a single process."""


@contextmanager
def join_world(*, shard: bool = False) -> Iterator[World]:
    """Yield the world that torchrun's environment describes, or this process alone without one.

    Raises `ConfigError` when a single process is to shard, `RankLost` on one rank when another one
    is lost, `ReportedElsewhere` on those that do not report it.
    """
    if _world_size() == 1:
        if shard:
            raise ConfigError(
                "one process cannot shard a model",
                remedy="start several: torchrun --nproc-per-node 2 -m bertsmith pretrain ...",
            )
        yield ALONE
        return
    world = _join(shard)
    assert world.watch is not None
    quiet, console.quiet = console.quiet, not world.first
    try:
        world.watch.check_alike()
        yield world
        world.wait()
    except BaseException as error:
        ending = _end(world, error)
        if ending is error:
            raise
        raise ending from error
    else:
        world.watch.leave()
        distributed.destroy_process_group()
    finally:
        console.quiet = quiet


def _world_size() -> int:
    """Return the number of ranks that the environment states; 1 where it states none."""
    stated = os.environ.get("WORLD_SIZE", "").strip() or "1"
    if not (stated.isascii() and stated.isdecimal()):
        raise ConfigError(f"WORLD_SIZE is {stated!r}, which is no number", remedy=_LAUNCH)
    return int(stated)


def _join(shard: bool) -> World:
    if missing := [name for name in _VARIABLES if not os.environ.get(name)]:
        raise ConfigError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, and {missing[0]} is not set",
            remedy=_LAUNCH,
        )
    local_rank = int(os.environ["LOCAL_RANK"])
    backend = "gloo"
    if torch.cuda.is_available():
        if local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"rank {os.environ['RANK']} is number {local_rank} on a machine with "
                f"{torch.cuda.device_count()} GPUs",
                remedy="start one process a GPU (--nproc-per-node)",
            )
        torch.cuda.set_device(local_rank)
        # messages between ranks stay on the CPU and wait for no GPU
        backend = "cpu:gloo,cuda:nccl"
    store, rank, size = next(iter(rendezvous("env://")))
    store = PrefixStore(f"bertsmith/{next(_joined)}", store)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_STUCK)
    # torchrun states it; another launcher may not
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    watch = RankWatch(store, rank, size, shard=shard)
    return World(rank=rank, size=size, local_size=local_size, shard=shard, store=store, watch=watch)


def _end(world: World, error: BaseException) -> BaseException:
    """Return the error that this rank raises instead: exactly one rank reports the cause."""
    watch = world.watch
    assert watch is not None
    ours = isinstance(error, UserError | KeyboardInterrupt)
    if isinstance(error, Interrupted):
        # all have stopped together; the first one to exit must not count as lost
        watch.leave()
        return error if world.first else ReportedElsewhere(ending_status())
    if not watch.has_failed(0 if ours else _NEWS_SECONDS):
        watch.record_failure(f"rank {world.rank} has failed: {str(error) or type(error).__name__}")
        return error if watch.reported_here else ReportedElsewhere(1)
    return RankLost(watch.cause) if watch.reported_here else ReportedElsewhere(1)
