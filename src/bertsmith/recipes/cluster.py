"""Work on a Ray cluster: items go to its processes, results come back in their order.

Plain tasks of Ray, not Ray Data: that needs pandas, has no source that streams what our readers
yield (rows with their lines, bad ones put aside), and would decide itself what is computed
together, on which the last bits of an answer depend. A task is a window of rows or a group of
sections, the same as without a cluster. A process opens the model or the vocabulary at its first
task and keeps it. Where a process is killed, or its machine is lost, Ray runs its tasks again.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import count
from typing import Any, Generic, TypeVar

from bertsmith.core import VERSION
from bertsmith.core.errors import ConfigError, MissingExtra, WorkerDied
from bertsmith.core.log import say
from bertsmith.core.output import output_of_this_thread
from bertsmith.core.printable import counted
from bertsmith.engine.config import EngineConfig

Item = TypeVar("Item")
Result = TypeVar("Result")
State = TypeVar("State")

# tasks in flight for each process: none waits, and memory stays bounded
_AHEAD = 3
_RETRIES = 5
_ANSWERS_WITHIN = 10.0
_JOBS = count()


@dataclass(frozen=True, kw_only=True)
class Job(Generic[State, Item, Result]):
    """The work on every item, in a process that has opened what it takes.

    Both functions are importable ones, `argument` can be pickled. Paths are those of the folder
    that this process works in, which the machines of a cluster share.
    """

    open: Callable[[Any], State]
    argument: Any
    work: Callable[[State, Item], Result]
    threads: int = 1


class Pending(Generic[Result]):
    """A result that is being computed."""

    def __init__(self, reference: Any) -> None:  # noqa: ANN401
        self._reference = reference

    def result(self) -> Result:
        """Return it; raises what the work raised, and `WorkerDied`."""
        import ray

        # a run in this process needs no module of training
        from bertsmith.training.processes import WorkerFailure

        try:
            result = ray.get(self._reference)
        except ray.exceptions.RayTaskError as error:
            # before our own code ran there
            raise ConfigError(
                f"a process of the cluster cannot work: {error.cause!r}",
                remedy=f"install bertsmith {VERSION} and the same Python on all of its machines",
            ) from error
        except ray.exceptions.RayError as error:
            raise WorkerDied(
                f"the same rows ended {_RETRIES + 1} processes of the cluster, perhaps because "
                f"memory ran out: {type(error).__name__}",
                remedy="use machines with more memory, or shorter texts",
            ) from error
        if isinstance(result, WorkerFailure):
            raise result.to_exception()
        return result  # type: ignore[no-any-return]


class Cluster:
    """A cluster that this process has joined."""

    def __init__(self) -> None:
        import ray

        self._ray = ray
        self._run = ray.remote(_run)

    def processes(self, threads: int = 1) -> int:
        """Return the number of processes of `threads` threads that fit."""
        return max(1, sum(cores // threads for cores in self._cores()))

    def _cores(self) -> list[int]:
        """Return the processor cores of each machine."""
        machines = (node["Resources"] for node in self._ray.nodes() if node["Alive"])
        return [int(resources.get("CPU", 0)) for resources in machines]

    def submit(self, job: Job[Any, Item, Result]) -> Callable[[Item], Pending[Result]]:
        """Return the function that gives an item of a job to the cluster.

        Ray would wait for ever for a machine on which a job fits. A cluster without any cores so
        far gets its machines when it has something to do. Raises `ConfigError`.
        """
        largest = max(self._cores(), default=0)
        if 0 < largest < job.threads:
            raise ConfigError(
                f"--threads is {job.threads}, and the largest machine of the cluster has "
                f"{counted(largest, 'core')}",
                remedy=f"give at most --threads {largest}",
            )
        # put there once; a process asks for it once
        shared = self._ray.put(job)
        name = f"{os.getpid()}-{next(_JOBS)}"
        run = self._run.options(num_cpus=job.threads, max_retries=_RETRIES)
        folder = os.getcwd()

        def submitted(item: Item) -> Pending[Result]:
            return Pending(run.remote(name, VERSION, folder, [shared], item))

        return submitted

    def in_order(self, job: Job[Any, Item, Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield the results of items, in their order, few in flight at a time."""
        submit, max_pending = self.submit(job), _AHEAD * self.processes(job.threads)
        waiting: deque[Pending[Result]] = deque()
        for item in items:
            waiting.append(submit(item))
            if len(waiting) > max_pending:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def cluster_options(engine: EngineConfig) -> dict[str, Any]:
    """Return the options of answering that every process of a cluster has.

    As many threads as are asked for, one if none are: how products add up depends on it.
    """
    return {"engine": replace(engine, threads=engine.threads or 1), "device": "cpu", "ray": None}


def print_cluster(cluster: Cluster, threads: int) -> None:
    """Print the number of processes that compute."""
    processes = cluster.processes(threads)
    say(f"cluster: {counted(processes, 'process', 'processes')} of {counted(threads, 'thread')}")


_opened: dict[str, tuple[Job[Any, Any, Any], Any]] = {}


def _run(name: str, version: str, folder: str, shared: list[Any], item: Any) -> Any:  # noqa: ANN401
    """Work on an item, in a process of the cluster; failures are returned."""
    try:
        if version != VERSION:
            raise ConfigError(
                f"a machine of the cluster has bertsmith {VERSION}, not {version}",
                remedy="install the same version on all of them",
            )
        if name not in _opened:
            import ray

            with suppress(OSError):
                os.chdir(folder)
            job = ray.get(shared[0])
            _opened.clear()
            _opened[name] = (job, job.open(job.argument))
        job, state = _opened[name]
        return job.work(state, item)
    except Exception as error:
        from bertsmith.training.processes import describe_failure

        return describe_failure(error)


def require_ray() -> None:
    """Raise `MissingExtra` unless Ray is installed."""
    if find_spec("ray") is None:
        raise MissingExtra("ray", "ray", "--ray")


@contextmanager
def join_cluster(address: str) -> Iterator[Cluster]:
    """Join a cluster: `auto` for the one of this machine, `local` for a new one, or host:port.

    A process that is part of one already stays in it. Raises `MissingExtra`, and `ConfigError`
    where no cluster answers.
    """
    require_ray()
    # nothing here reports to anybody
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    if ray.is_initialized():
        with output_of_this_thread():
            yield Cluster()
        return
    settings = {"include_dashboard": False} if address == "local" else {}
    try:
        if ":" in address:
            # Ray would try for minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_WITHIN).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **settings)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"--ray {address}: no cluster answers: {reason}",
            remedy="start one with: ray start --head, and give --ray auto on a machine of it",
        ) from error
    try:
        with output_of_this_thread():
            yield Cluster()
    finally:
        ray.shutdown()
