"""The worker process: answers batches until the process that speaks HTTP goes.

Three threads: one receives messages, one encodes the next batch, and the main one lets the engine
compute, which leaves Python to the others meanwhile. Urgent batches are the next ones, then comes
the oldest. What was cancelled, or is past its deadline, when its turn comes is not computed.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NoReturn

from bertsmith.core.errors import NonFiniteOutputs, UserError, out_of_memory
from bertsmith.core.log import say
from bertsmith.core.signals import STOPPING
from bertsmith.engine.predictor import Request
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.log import buffered_log, drain_log
from bertsmith.serving.messages import (
    Batch,
    Cancel,
    Input,
    Opened,
    Outcome,
    Refused,
    Started,
    framed,
    read_frame,
)
from bertsmith.serving.models.rendering import messages_of, outcomes_of
from bertsmith.serving.models.served import ServedModel, open_models
from bertsmith.serving.processes import LONG_SLICE, MIDDLE_SLICE, name_process, set_slice

# seconds after which a thread that computes in Python lets another one run
_SWITCH = 0.001
_KEPT_CANCELLATIONS = 100_000
_NICENESS = 5
_NICENESS_OF_LARGE = 10

Encoded = tuple[int, Input, float, tuple[Request[Any], bool] | Outcome]
"""A text: the number of its part, itself, its deadline, and what became of it."""
Turn = tuple[bool, int]
"""False for an urgent batch, and the number of the batch, which no other has."""


class Computing:
    """Answers the batches of a worker; `send` sends a message to the parent."""

    def __init__(self, models: Sequence[ServedModel], send: Callable[[object], None]) -> None:
        self._models, self._send = models, send
        self._received: queue.PriorityQueue[tuple[Turn, Batch]] = queue.PriorityQueue()
        self._encoded: queue.PriorityQueue[tuple[Turn, Batch, list[Encoded]]]
        self._encoded = queue.PriorityQueue()
        self._cancelled: set[int] = set()

    def receive(self, message: Batch | Cancel) -> None:
        """Take a message of the parent."""
        if isinstance(message, Batch):
            self._received.put(((not message.urgent, message.number), message))
            return
        if len(self._cancelled) > _KEPT_CANCELLATIONS:
            self._cancelled.clear()
        self._cancelled.update(message.numbers)

    def encode_next(self) -> None:
        """Encode the next batch."""
        number, batch = self._received.get()
        self._encoded.put((number, batch, self._encode(batch)))

    def compute_next(self) -> None:
        """Compute the next batch and send its outcomes."""
        _, batch, encoded = self._encoded.get()
        started = time.perf_counter()
        outcomes = outcomes_of(batch, self._outcomes(batch, encoded))
        for message in messages_of(batch.number, outcomes, time.perf_counter() - started):
            self._send(message)

    def answer(self, batch: Batch) -> tuple[Outcome, ...]:
        """Return the outcomes of a batch at once."""
        return tuple(self._outcomes(batch, self._encode(batch)))

    def _encode(self, batch: Batch) -> list[Encoded]:
        model = self._models[batch.model]
        results: list[Encoded] = []
        for part, inputs, deadline in batch.entries:
            for request_input in inputs:
                entry: tuple[Request[Any], bool] | Outcome
                number = len(results)
                if self._is_abandoned(part, deadline):
                    entry = _expired(number)
                else:
                    entry = _guarded(lambda: _encoded(model, batch, request_input, number), number)  # noqa: B023
                results.append((part, request_input, deadline, entry))
        return results

    def _outcomes(self, batch: Batch, encoded: Sequence[Encoded]) -> list[Outcome]:
        results: dict[int, Outcome] = {}
        computable: list[tuple[int, Input, Request[Any], bool]] = []
        for number, (part, text_input, deadline, entry) in enumerate(encoded):
            if isinstance(entry, Outcome):
                results[number] = entry
            elif self._is_abandoned(part, deadline):
                results[number] = _expired(number)
            else:
                computable.append((number, text_input, *entry))
        for answer in self._answers(batch, computable):
            results[answer.number] = answer
        self._cancelled.difference_update(part for part, _, _ in batch.entries)
        return [results[number] for number in range(len(encoded))]

    def _answers(
        self, batch: Batch, entries: list[tuple[int, Input, Request[Any], bool]]
    ) -> list[Outcome]:
        """Return answers; one by one where something goes wrong, so that it befalls one alone."""
        if not entries:
            return []
        handler = self._models[batch.model].handlers[batch.task]
        if len(entries) > 1:
            try:
                return handler.answers(entries)
            except Exception as error:
                _log_error(error)
        return [_guarded(lambda: handler.answers([entry])[0], entry[0]) for entry in entries]  # noqa: B023

    def _is_abandoned(self, part: int, deadline: float) -> bool:
        """Return whether nobody waits for a part of a request any more."""
        return part in self._cancelled or time.monotonic() >= deadline


def _expired(number: int) -> Outcome:
    return Outcome(number, problem="expired", message="no client is waiting for it")


def _encoded(
    model: ServedModel, batch: Batch, request_input: Input, number: int
) -> tuple[Request[Any], bool] | Outcome:
    if batch.task == "tokens":
        return model.tokens(request_input, number)
    return model.handlers[batch.task].encode(request_input, number)


def _guarded(run: Callable[[], Any], number: int) -> Any:  # noqa: ANN401
    """Return the result of a function, or an outcome that says that it failed."""
    try:
        return run()
    except NonFiniteOutputs as error:
        return Outcome(number, problem="failed", message=error.problem)
    except UserError as error:
        return Outcome(number, problem="invalid", message=f"{error.problem}; {error.remedy}")
    except Exception as error:
        short = out_of_memory(error)
        if short is None and type(error).__name__ == "AcceleratorError":
            # this process cannot use its GPU any more: another one takes its place
            raise
        _log_error(error)
        message = "the answer cannot be computed" if short is None else short.problem
        return Outcome(number, problem="failed", message=message)


def _log_error(error: Exception) -> None:
    """Print the place of an error, whose message may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    say(f"worker {os.getpid()}: {type(error).__name__} at {location}")


def log_traceback() -> None:
    """Print an error that can quote no text of a request."""
    for line in traceback.format_exc().splitlines():
        say(line)


def main(connection: socket.socket) -> None:
    """Be a worker that opens the models itself."""
    ignore_signals()
    lower_priority()
    run_worker(connection, None)


def ignore_signals() -> None:
    """Leave what asks for an end to the process that speaks HTTP, which ends the others itself."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def lower_priority(more: int = _NICENESS) -> None:
    """Lower the priority of this process, so that the one that takes requests goes first."""
    if hasattr(os, "nice"):
        os.nice(more)


def run_worker(connection: socket.socket, models: Sequence[ServedModel] | None) -> NoReturn:
    """Serve the process at the other end of a connection until it goes; ends this process.

    `models` are None where they have to be opened first.
    """
    name_process("bs-worker")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.setswitchinterval(_SWITCH)
    with buffered_log():
        try:
            _serve(connection, models)
        except (EOFError, OSError):
            # this worker was abandoned
            os._exit(0)
        except Exception:
            log_traceback()
            drain_log()
        os._exit(1)


def _serve(connection: socket.socket, models: Sequence[ServedModel] | None) -> None:
    import torch

    connection.sendall(framed(Started(os.getpid())))
    stream = connection.makefile("rb")
    config, threads, lane = read_frame(stream)
    assert isinstance(config, ServeConfig)
    if lane == "large":
        lower_priority(_NICENESS_OF_LARGE - _NICENESS)
    set_slice(MIDDLE_SLICE if lane == "small" else LONG_SLICE)
    torch.set_num_threads(threads)
    if models is None:
        try:
            models = open_models(config, threads)
        except UserError as error:
            connection.sendall(framed(Refused(str(error))))
            return
    computing = Computing(models, lambda message: connection.sendall(framed(message)))
    threading.Thread(target=_receive, args=(stream, computing), daemon=True).start()
    threading.Thread(target=_loop, args=(computing.encode_next,), daemon=True).start()
    connection.sendall(framed(Opened(tuple(model.facts for model in models))))
    _loop(computing.compute_next)


def _receive(stream: BinaryIO, computing: Computing) -> None:
    while True:
        try:
            message = read_frame(stream)
        except (EOFError, OSError):
            # the parent has gone: what is being computed is abandoned
            os._exit(0)
        computing.receive(message)


def _loop(step: Callable[[], None]) -> None:
    """Do a step again and again; a fault ends the process, which is then replaced."""
    try:
        while True:
            step()
    except Exception as error:
        if not isinstance(error, OSError):
            _log_error(error)
            drain_log()
        os._exit(1)
