"""Replicas of a model in processes of this machine, each computing with one thread.

Threads that share a matrix product wait for each other at its end. A small model's products are
short, so much of the time is spent waiting, and nearly all of it on a machine with other work. Here
every process computes gradients of whole parts of a batch instead:

- The weights lie in memory that all processes share; only the main process changes them.
- A batch is cut into parts, twice as many as there are processes. Their numbers lie in a pipe, from
  which each process, the main one too, takes the next when it is done with one: a process whose
  core is taken by another program computes fewer.
- The gradient of each part has a separate region in shared memory. When all are there, the
  processes add them, slice by slice, whose numbers they take from the pipe as well: always in the
  order of the parts, so the sum is the same to the last bit whichever process did what, and with
  any number of processes, one included.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bertsmith.core.errors import ConfigError, WorkerDied
from bertsmith.core.log import print_error
from bertsmith.core.processors import usable_processors
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.dropout import keys_from
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
from bertsmith.training.replicas import LossFunction, PlainLosses, Replica, to_losses

PARTS_PER_PROCESS = 2
POSSIBLE = hasattr(os, "memfd_create")
"""True if the system has memory that processes share without a name: Linux has."""
_ALIGNED = 16  # floats in a cache line
_COPIES = 2  # of the model's size, beside the gradients of parts: weights and their gradient
_SILENT_SECONDS = 10.0
# of the number of a part or slice: a machine may have more cores than a byte counts parts
_NUMBER_BYTES = 2
# floats of a slice: those of a few parts and their sum stay in a core's cache
_SLICE = 1 << 15
# their numbers must fit into a pipe, which may be of one page where a user has many of them
_MOST_SLICES = 4096 // _NUMBER_BYTES


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

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """Seed the generators from which dropout has its keys: this thread's, and those of GPUs."""
        generator = torch.Generator()
        generator.manual_seed(int(stream(Purpose.DROPOUT, self.seed, self.step, self.number)))
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(generator.initial_seed())
        with keys_from(generator):
            yield


class BatchTask(NamedTuple):
    """The parts of a batch, and the number of targets of the whole step."""

    parts: Sequence[Batch]
    counts: Mapping[str, int]
    key: DropoutKey


class SumTask(NamedTuple):
    """The parts whose gradients are added, to that of earlier batches or to nothing."""

    parts: int
    to_nothing: bool


class PartResult(NamedTuple):
    """A part whose gradient is in shared memory, where `used` says of which parameters."""

    part: int
    total: Tensor
    losses: PlainLosses
    used: Sequence[bool]


class _SharedMemory:
    """The weights of a model, their gradient, and that of each part, in a file that is only memory.

    The gradient is there as tensors of the parameters' shapes, and in slices of one dimension.
    """

    def __init__(self, file: int, parameters: Sequence[nn.Parameter], parts: int) -> None:
        sizes = [-(-parameter.numel() // _ALIGNED) * _ALIGNED for parameter in parameters]
        starts = [0, *accumulate(sizes)]
        stride = starts[-1]
        os.ftruncate(file, 4 * stride * (_COPIES + parts))
        flat = torch.frombuffer(mmap.mmap(file, 0), dtype=torch.float32).view(-1, stride)
        copies = [
            [
                row[start : start + parameter.numel()].view(parameter.shape)
                for parameter, start in zip(parameters, starts, strict=False)
            ]
            for row in flat
        ]
        self.weights, self.gradient, *self.gradients = copies
        size = max(_SLICE, -(-stride // _MOST_SLICES))
        self._slices = flat[1:].split(size, dim=1)

    @property
    def slices(self) -> int:
        """The number of slices in which gradients are added."""
        return len(self._slices)

    def add(self, number: int, parts: int, *, to_nothing: bool) -> None:
        """Add one slice of the parts' gradients, in their order, to that of the gradient."""
        total, *gradients = self._slices[number].unbind()
        for part, gradient in enumerate(gradients[:parts]):
            if to_nothing and part == 0:
                total.copy_(gradient)
            else:
                total.add_(gradient)

    def bind(self, parameters: Sequence[nn.Parameter]) -> None:
        """Let parameters have their values here."""
        for parameter, weight in zip(parameters, self.weights, strict=True):
            parameter.data = weight


class _PartComputer:
    """Computes the gradients of parts of a batch, and adds them: what every process does."""

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

    def add(self, task: SumTask) -> list[int]:
        """Add slices of the parts' gradients until none is left; return which."""
        added = []
        for number in iter(self._next, None):
            self._shared.add(number, task.parts, to_nothing=task.to_nothing)
            added.append(number)
        return added

    def _next(self) -> int | None:
        """Take the number of a part or slice that no process has taken."""
        number = b""
        with suppress(BlockingIOError):
            # nothing, too, where the process that hands out parts has been killed
            number = os.read(self._queue, _NUMBER_BYTES)
        return int.from_bytes(number, "little") if number else None

    def _compute_part(self, part: int, work: BatchTask) -> PartResult:
        number = work.key.number * len(self._shared.gradients) + part
        with work.key._replace(number=number).seeded():
            losses = self._replica.losses(work.parts[part])
        total = losses.total(work.counts)
        gradients = torch.autograd.grad(total, self.parameters, allow_unused=True)
        for target, gradient in zip(self._shared.gradients[part], gradients, strict=True):
            if gradient is None:
                target.zero_()
            else:
                target.copy_(gradient)
        return PartResult(
            part=part,
            total=total.detach(),
            losses={
                name: (loss.sum.detach(), loss.correct, loss.count, loss.weight, loss.predicts)
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
            task: BatchTask | SumTask = receive(connection)
            connection.send_bytes(
                pickled(parts.add(task) if isinstance(task, SumTask) else parts.compute(task))
            )
    except ConnectionLost:
        raise
    except Exception as error:
        connection.send_bytes(pickled(describe_failure(error)))
        receive(connection)  # until the other end closes


def processes_for(replicas: int) -> int:
    """Return the number of processes of so many replicas: as many as there are cores for."""
    return min(replicas, usable_processors())


def shared_bytes(model: nn.Module, processes: int) -> int:
    """Return the bytes of shared memory that replicas of a model in `processes` processes take."""
    values = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return 4 * values * (_COPIES + PARTS_PER_PROCESS * processes)


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
        self._start(work, len(work.parts))
        results = self._own.compute(work)
        for more in self._results():
            results += more
        results.sort(key=lambda result: result.part)
        parameters = self._own.parameters
        first = all(parameter.grad is None for parameter in parameters)
        addition = SumTask(len(results), to_nothing=first)
        self._start(addition, self._shared.slices)
        added = len(self._own.add(addition)) + sum(map(len, self._results()))
        assert added == self._shared.slices
        for number, parameter in enumerate(parameters):
            if any(result.used[number] for result in results):
                parameter.grad = self._shared.gradient[number]
        return [(result.total, to_losses(result.losses)) for result in results]

    def _start(self, task: BatchTask | SumTask, pieces: int) -> None:
        """Let all processes begin with the pieces of a task."""
        self._fill(pieces)
        message = pickled(task) if self._helpers else b""
        for process in self._helpers:
            process.send_pickled(message)

    def _results(self) -> Iterator[Any]:
        """Yield the result of each other process, when no piece is left."""
        for process in self._helpers:
            process.wait()
            yield process.receive()


def _trained_parameters(replica: Replica) -> list[nn.Parameter]:
    """Return the parameters that are trained, in an order that is the same in every process."""
    return [parameter for parameter in replica.trained.parameters() if parameter.requires_grad]


@contextmanager
def local_replicas(
    model: Model, objective: LossFunction, precision: Precision, *, parts: int, processes: int
) -> Iterator[LocalReplicas]:
    """Yield replicas of a model in `processes`, this one among them, that share its weights.

    Meanwhile the trained parameters lie in shared memory. `processes` does not change results.
    Raises `WorkerDied`, and `ConfigError` on a system without such memory.
    """
    if not POSSIBLE:
        raise ConfigError(
            "the run was begun with several local replicas, which need Linux",
            remedy="resume it where it was begun, or start another run with --out",
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
    """Put the numbers of parts or slices into the pipe that processes take them from."""
    numbers = b"".join(number.to_bytes(_NUMBER_BYTES, "little") for number in range(count))
    written = os.write(entry, numbers)
    assert written == len(numbers)
