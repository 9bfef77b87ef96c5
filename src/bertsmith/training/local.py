"""Replicas of a model in processes of this machine, each computing with one thread.

Threads that share a matrix product wait for each other at its end. A small model's products are
short, so much of the time is spent waiting, and nearly all of it on a machine with other work. Here
every process computes gradients of whole parts of a batch instead:

- The weights lie in memory that all processes share; only the main process changes them.
- A batch is cut into parts, twice as many as there are processes. Their numbers lie in a pipe, from
  which each process, the main one too, takes the next when it is done with one: a process whose
  core is taken by another program computes fewer.
- The gradient of each part has a place of its own in shared memory. When all are there, the
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
from bertsmith.core.log import complain
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Losses
from bertsmith.training.distribution import ALONE
from bertsmith.training.processes import Gone, Worker, failure, keep_large_blocks, pickled, receive
from bertsmith.training.replicas import Objective, PlainLosses, Replica, losses_of

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
# their numbers must fit into a pipe
_MOST_SLICES = 1 << 14


class Material(NamedTuple):
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


class Work(NamedTuple):
    """The parts of a batch, and the number of targets of the whole step."""

    parts: Sequence[Batch]
    counts: Mapping[str, int]
    key: DropoutKey


class Sum(NamedTuple):
    """The parts whose gradients are to be added, to that of earlier batches or to nothing."""

    parts: int
    to_nothing: bool


class Done(NamedTuple):
    """A part whose gradient is in shared memory, where `used` says of which parameters."""

    part: int
    total: Tensor
    losses: PlainLosses
    used: Sequence[bool]


class _Shared:
    """The weights of a model, their gradient, and that of each part, in a file that is only memory.

    The gradient is there as tensors of the parameters' shapes, and in slices of one dimension.
    """

    def __init__(self, file: int, parameters: Sequence[nn.Parameter], parts: int) -> None:
        sizes = [-(-each.numel() // _ALIGNED) * _ALIGNED for each in parameters]
        begins = [0, *accumulate(sizes)]
        one = begins[-1]
        os.ftruncate(file, 4 * one * (_COPIES + parts))
        flat = torch.frombuffer(mmap.mmap(file, 0), dtype=torch.float32).view(-1, one)
        copies = [
            [
                row[begin : begin + each.numel()].view(each.shape)
                for each, begin in zip(parameters, begins, strict=False)
            ]
            for row in flat
        ]
        self.weights, self.gradient, *self.gradients = copies
        size = max(_SLICE, -(-one // _MOST_SLICES))
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


class _Parts:
    """Computes the gradients of parts of a batch, and adds them: what every process does."""

    def __init__(
        self, replica: Replica, parameters: Sequence[nn.Parameter], shared: _Shared, queue: int
    ) -> None:
        self._replica, self.parameters = replica, parameters
        self._shared, self._queue = shared, queue

    def compute(self, work: Work) -> list[Done]:
        """Compute parts until none is left."""
        return [self._one(part, work) for part in iter(self._next, None)]

    def add(self, asked: Sum) -> list[int]:
        """Add slices of the parts' gradients until none is left; return which."""
        added = []
        for number in iter(self._next, None):
            self._shared.add(number, asked.parts, to_nothing=asked.to_nothing)
            added.append(number)
        return added

    def _next(self) -> int | None:
        """Take the number of a part or slice that nobody has taken."""
        number = b""
        with suppress(BlockingIOError):
            # nothing, too, where the process that hands out parts has been killed
            number = os.read(self._queue, _NUMBER_BYTES)
        return int.from_bytes(number, "little") if number else None

    def _one(self, part: int, work: Work) -> Done:
        number = work.key.number * len(self._shared.gradients) + part
        work.key._replace(number=number).seed_torch()
        losses = self._replica.losses(work.parts[part])
        total = losses.total(work.counts)
        found = torch.autograd.grad(total, self.parameters, allow_unused=True)
        for place, gradient in zip(self._shared.gradients[part], found, strict=True):
            if gradient is None:
                place.zero_()
            else:
                place.copy_(gradient)
        return Done(
            part=part,
            total=total.detach(),
            losses={
                name: (each.sum.detach(), each.correct, each.count, each.weight)
                for name, each in losses.parts.items()
            },
            used=[gradient is not None for gradient in found],
        )


class _Helper(Worker):
    """A process that computes parts beside the main one."""

    def __init__(self) -> None:
        super().__init__(serve)

    def died(self, status: int) -> WorkerDied:
        """Return the error for a process that has died."""
        return WorkerDied(
            f"a process that trains has died (status {status}), perhaps out of memory",
            remedy="give the same command again: it continues",
        )

    def give(self, *files: int) -> None:
        """Let the process have open files."""
        for file in files:
            send_handle(self.connection, file, self._process.pid)

    def wait(self) -> None:
        """Wait for a message; say so once if it takes long."""
        if not self.connection.poll(_SILENT_SECONDS):
            pid = self._process.pid
            complain(
                f"process {pid}, which trains a part of each batch, has been silent for "
                f"{_SILENT_SECONDS:.0f} seconds; if it is stopped, kill -CONT {pid} resumes it"
            )


def serve(connection: Connection) -> None:
    """Compute parts for the process at the other end, until it exits."""
    torch.set_num_threads(1)
    keep_large_blocks()
    material: Material = receive(connection)
    memory, queue = recv_handle(connection), recv_handle(connection)
    try:
        model, objective, precision = pickle.loads(material.replica)
        replica = Replica(model, objective, precision, ALONE)
        parameters = _trained(replica)
        shared = _Shared(memory, parameters, material.parts)
        shared.bind(parameters)
        parts = _Parts(replica, parameters, shared, queue)
        while True:
            asked = receive(connection)
            connection.send_bytes(
                pickled(parts.add(asked) if isinstance(asked, Sum) else parts.compute(asked))
            )
    except Gone:
        raise
    except Exception as error:
        connection.send_bytes(pickled(failure(error)))
        receive(connection)  # until the other end closes


def shared_bytes(model: nn.Module, processes: int) -> int:
    """Return the bytes of shared memory that replicas of a model in so many processes take."""
    values = sum(each.numel() for each in model.parameters() if each.requires_grad)
    return 4 * values * (_COPIES + PARTS_PER_PROCESS * processes)


class LocalReplicas:
    """Computes the gradient of a batch by several processes, or by this one as several would."""

    def __init__(
        self, own: _Parts, helpers: Sequence[_Helper], shared: _Shared, fill: Callable[[int], None]
    ) -> None:
        self._own, self._helpers, self._shared, self._fill = own, helpers, shared, fill

    def add_gradient(
        self, batch: Batch, counts: Mapping[str, int], key: DropoutKey
    ) -> list[tuple[Tensor, Losses]]:
        """Add a batch's gradient to that of the trained parameters.

        `counts` are the targets of all batches of the step. Returns the total and the losses of
        each part. Raises `WorkerDied`.
        """
        work = Work(batch.parts(len(self._shared.gradients)), counts, key)
        self._ask(work, len(work.parts))
        done = self._own.compute(work)
        for answer in self._answers():
            done += answer
        done.sort(key=lambda each: each.part)
        parameters = self._own.parameters
        asked = Sum(len(done), to_nothing=all(each.grad is None for each in parameters))
        self._ask(asked, self._shared.slices)
        added = len(self._own.add(asked)) + sum(map(len, self._answers()))
        assert added == self._shared.slices
        for number, parameter in enumerate(parameters):
            if any(each.used[number] for each in done):
                parameter.grad = self._shared.gradient[number]
        return [(each.total, losses_of(each.losses)) for each in done]

    def _ask(self, message: Work | Sum, pieces: int) -> None:
        """Let all processes begin with the pieces of something."""
        self._fill(pieces)
        told = pickled(message) if self._helpers else b""
        for helper in self._helpers:
            helper.tell_pickled(told)

    def _answers(self) -> Iterator[Any]:
        """Yield what each process answers when no piece is left."""
        for helper in self._helpers:
            helper.wait()
            yield helper.hear()


def _trained(replica: Replica) -> list[nn.Parameter]:
    """Return the parameters that are trained, in an order that is the same in every process."""
    return [each for each in replica.trained.parameters() if each.requires_grad]


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
    parameters = _trained(replica)
    memory = os.memfd_create("bertsmith")
    queue, entry = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    helpers: list[_Helper] = []
    try:
        shared = _Shared(memory, parameters, parts)
        for parameter, weight in zip(parameters, shared.weights, strict=True):
            weight.copy_(parameter.data)
        material = pickle.dumps((model, objective, precision)) if processes > 1 else b""
        for _ in range(processes - 1):
            helpers.append(_Helper())
        for helper in helpers:
            helper.tell(Material(material, parts))
            helper.give(memory, queue)
        shared.bind(parameters)
        yield LocalReplicas(
            _Parts(replica, parameters, shared, queue),
            helpers,
            shared,
            lambda count: _put(entry, count),
        )
    finally:
        for helper in helpers:
            helper.close()
        for parameter in parameters:
            parameter.data = parameter.data.clone()
        for file in (memory, queue, entry):
            os.close(file)


def _put(entry: int, count: int) -> None:
    """Put the numbers of parts or slices into the pipe that processes take them from."""
    os.write(entry, b"".join(number.to_bytes(_NUMBER_BYTES, "little") for number in range(count)))
