"""Replicas of a model in processes of this machine, each computing with one thread.

Threads that share a matrix product wait for each other at its end. A small model's products are
short, so much of the time is spent waiting, and nearly all of it on a machine with other work. Here
every process computes gradients of whole parts of a batch instead:

- The weights lie in memory that all processes share; only the main process changes them.
- A batch is cut into parts, twice as many as there are processes. Their numbers lie in a pipe, from
  which each process, the main one too, takes the next when it is done with one: a process whose
  core is taken by another program computes fewer.
- The gradient of each part has a separate region in shared memory. They are added in the order of
  the parts, so the sum is the same to the last bit whichever process computed which part, and with
  any number of processes, one included.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, pairwise
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertsmith.core.errors import ConfigError, WorkerDied
from bertsmith.core.log import print_error
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Losses
from bertsmith.training.distribution import ALONE
from bertsmith.training.processes import (
    ConnectionLost,
    Worker,
    describe_failure,
    keep_large_blocks,
    pickled,
    receive,
)
from bertsmith.training.replicas import Objective, PlainLosses, Replica, to_losses

PARTS_PER_PROCESS = 2
POSSIBLE = hasattr(os, "memfd_create")
"""True if the system has memory that processes share without a name: Linux has."""
_ALIGNED = 16  # floats in a cache line
_SILENT_SECONDS = 10.0
# of the number of a part: a machine may have more cores than a byte counts parts
_NUMBER_BYTES = 2


class ReplicaInputs(NamedTuple):
    """The material from which a process computes gradients; the weights are in shared memory."""

    replica: bytes
    """A model with its objective and precision."""
    parts: int


class DropoutKey(NamedTuple):
    """The key that dropout depends on: the seed of the run, the step, a batch or part of it."""

    seed: int
    step: int
    number: int

    def seed_torch(self) -> None:
        """Seed torch's generators, from which dropout has its keys.

        The numbers are those of `torch.manual_seed`, which formats the stack of its caller for each
        kind of device that is not in use: at every batch, for nothing.
        """
        torch.default_generator.manual_seed(
            int(stream(Purpose.DROPOUT, self.seed, self.step, self.number))
        )
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(torch.initial_seed())


class BatchTask(NamedTuple):
    """The parts of a batch, and the number of targets of the whole step."""

    parts: Sequence[Batch]
    counts: Mapping[str, int]
    key: DropoutKey


class PartResult(NamedTuple):
    """A part whose gradient is in shared memory, where `used` says of which parameters."""

    part: int
    total: Tensor
    losses: PlainLosses
    used: Sequence[bool]


class _SharedMemory:
    """The weights of a model, and a gradient of it for each part, in a file that is only memory."""

    def __init__(self, file: int, parameters: Sequence[nn.Parameter], parts: int) -> None:
        sizes = [-(-parameter.numel() // _ALIGNED) * _ALIGNED for parameter in parameters]
        starts = [0, *accumulate(sizes)]
        stride = starts[-1]
        os.ftruncate(file, 4 * stride * (1 + parts))
        flat = torch.frombuffer(mmap.mmap(file, 0), dtype=torch.float32)

        def copy(number: int) -> list[Tensor]:
            located = zip(parameters, pairwise(starts), strict=True)
            return [
                flat[number * stride + begin :][: item.numel()].view(item.shape)
                for item, (begin, _) in located
            ]

        self.weights = copy(0)
        self.gradients = [copy(1 + part) for part in range(parts)]

    def bind(self, parameters: Sequence[nn.Parameter]) -> None:
        """Let parameters have their values here."""
        for parameter, weight in zip(parameters, self.weights, strict=True):
            parameter.data = weight


class _PartComputer:
    """Computes the gradients of parts of a batch: what every process does."""

    def __init__(
        self,
        replica: Replica,
        parameters: Sequence[nn.Parameter],
        shared: _SharedMemory,
        queue: int,
    ) -> None:
        self._replica, self.parameters = replica, parameters
        self._shared, self._queue = shared, queue

    def compute(self, work: BatchTask) -> list[PartResult]:
        """Compute parts until none is left."""
        return [self._compute_part(part, work) for part in iter(self._next, None)]

    def _next(self) -> int | None:
        """Take the number of a part that no process has taken."""
        number = b""
        with suppress(BlockingIOError):
            # nothing, too, where the process that hands out parts has been killed
            number = os.read(self._queue, _NUMBER_BYTES)
        return int.from_bytes(number, "little") if number else None

    def _compute_part(self, part: int, work: BatchTask) -> PartResult:
        number = work.key.number * len(self._shared.gradients) + part
        work.key._replace(number=number).seed_torch()
        losses = self._replica.losses(work.parts[part])
        total = losses.total(work.counts)
        gradients = torch.autograd.grad(total, self.parameters, allow_unused=True)
        for target, gradient in zip(self._shared.gradients[part], gradients, strict=True):
            if gradient is not None:
                target.copy_(gradient)
        return PartResult(
            part=part,
            total=total.detach(),
            losses={
                name: (loss.sum.detach(), loss.correct, loss.count, loss.weight)
                for name, loss in losses.parts.items()
            },
            used=[gradient is not None for gradient in gradients],
        )


class _ReplicaProcess(Worker):
    """A process that computes parts beside the main one."""

    def __init__(self) -> None:
        super().__init__(serve)

    def died(self, status: int) -> WorkerDied:
        """Return the error for a process that has died."""
        return WorkerDied(
            f"a process that trains has died (status {status}), perhaps out of memory",
            remedy="give the same command again: it continues",
        )

    def send_files(self, *files: int) -> None:
        """Let the process have open files."""
        for file in files:
            send_handle(self.connection, file, self._process.pid)

    def wait(self) -> None:
        """Wait for a message; report once if it takes long."""
        if not self.connection.poll(_SILENT_SECONDS):
            pid = self._process.pid
            print_error(
                f"process {pid}, which trains a part of each batch, has been silent for "
                f"{_SILENT_SECONDS:.0f} seconds; if it is stopped, kill -CONT {pid} resumes it"
            )


def serve(connection: Connection) -> None:
    """Compute parts for the process at the other end, until it exits."""
    torch.set_num_threads(1)
    keep_large_blocks()
    inputs: ReplicaInputs = receive(connection)
    memory, queue = recv_handle(connection), recv_handle(connection)
    try:
        model, objective, precision = pickle.loads(inputs.replica)
        replica = Replica(model, objective, precision, ALONE)
        parameters = _trained_parameters(replica)
        shared = _SharedMemory(memory, parameters, inputs.parts)
        shared.bind(parameters)
        parts = _PartComputer(replica, parameters, shared, queue)
        while True:
            connection.send_bytes(pickled(parts.compute(receive(connection))))
    except ConnectionLost:
        raise
    except Exception as error:
        connection.send_bytes(pickled(describe_failure(error)))
        receive(connection)  # until the other end closes


def shared_bytes(model: nn.Module, processes: int) -> int:
    """Return the bytes of shared memory that replicas of a model in `processes` processes take."""
    values = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return 4 * values * (1 + PARTS_PER_PROCESS * processes)


class LocalReplicas:
    """Computes the gradient of a batch by several processes, or by this one as several would."""

    def __init__(
        self,
        computer: _PartComputer,
        helpers: Sequence[_ReplicaProcess],
        shared: _SharedMemory,
        fill: Callable[[int], None],
    ) -> None:
        self._own, self._helpers, self._shared, self._fill = computer, helpers, shared, fill

    def add_gradient(
        self, batch: Batch, counts: Mapping[str, int], key: DropoutKey
    ) -> list[tuple[Tensor, Losses]]:
        """Add a batch's gradient to that of the trained parameters.

        `counts` are the targets of all batches of the step. Returns the total and the losses of
        each part. Raises `WorkerDied`.
        """
        work = BatchTask(batch.parts(len(self._shared.gradients)), counts, key)
        self._fill(len(work.parts))
        message = pickled(work) if self._helpers else b""
        for process in self._helpers:
            process.send_pickled(message)
        results = self._own.compute(work)
        for process in self._helpers:
            process.wait()
            results += process.receive()
        results.sort(key=lambda result: result.part)
        for number, parameter in enumerate(self._own.parameters):
            for result in results:
                if result.used[number]:
                    _add(parameter, self._shared.gradients[result.part][number])
        return [(result.total, to_losses(result.losses)) for result in results]


def _add(parameter: nn.Parameter, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient.clone()
    else:
        parameter.grad.add_(gradient)


def _trained_parameters(replica: Replica) -> list[nn.Parameter]:
    """Return the parameters that are trained, in an order that is the same in every process."""
    return [parameter for parameter in replica.trained.parameters() if parameter.requires_grad]


@contextmanager
def local_replicas(
    model: Model, objective: Objective, precision: Precision, *, parts: int, processes: int
) -> Iterator[LocalReplicas]:
    """Yield replicas of a model in `processes`, this one among them, that share its weights.

    Meanwhile the trained parameters lie in shared memory. `processes` does not change results.
    Raises `WorkerDied`, and `ConfigError` on a system without such memory.
    """
    if not POSSIBLE:
        raise ConfigError(
            "the run was begun with several local replicas, which need Linux",
            remedy="go on where it was begun, or begin another with --out",
        )
    replica = Replica(model, objective, precision, ALONE)
    parameters = _trained_parameters(replica)
    memory = os.memfd_create("bertsmith")
    queue, entry = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    helpers: list[_ReplicaProcess] = []
    try:
        shared = _SharedMemory(memory, parameters, parts)
        for parameter, weight in zip(parameters, shared.weights, strict=True):
            weight.copy_(parameter.data)
        pickled_replica = pickle.dumps((model, objective, precision)) if processes > 1 else b""
        for _ in range(processes - 1):
            helpers.append(_ReplicaProcess())
        for helper in helpers:
            helper.send(ReplicaInputs(pickled_replica, parts))
            helper.send_files(memory, queue)
        shared.bind(parameters)
        yield LocalReplicas(
            _PartComputer(replica, parameters, shared, queue),
            helpers,
            shared,
            lambda count: _enqueue_parts(entry, count),
        )
    finally:
        for helper in helpers:
            helper.close()
        for parameter in parameters:
            parameter.data = parameter.data.clone()
        for file in (memory, queue, entry):
            os.close(file)


def _enqueue_parts(entry: int, count: int) -> None:
    """Put the numbers of parts into the pipe that processes take them from."""
    os.write(entry, b"".join(part.to_bytes(_NUMBER_BYTES, "little") for part in range(count)))
