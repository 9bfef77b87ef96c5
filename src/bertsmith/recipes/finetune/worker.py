"""The worker process of parallel training: trains what its parent process (parallel.py) sends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch

from bertsmith.core.log import shown_on
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.settings import FinetuneConfig
from bertsmith.recipes.finetune.trial import Prepared, TrialResult
from bertsmith.recipes.finetune.trial_folder import Trial, carry_out
from bertsmith.training.interruption import Interrupted
from bertsmith.training.processes import Failed, Gone, failure, pickled, receive

# at most this often, so that progress messages take no time from training
_SECONDS_BETWEEN_SHARES = 0.5


class Workplace(NamedTuple):
    """The folder of the run, the threads of the process, and whether TensorBoard reads the log."""

    run: Path
    threads: int
    tensorboard: bool


class Material(NamedTuple):
    """The model and the data of the trainings that follow, as in a `Trial`."""

    make_model: Callable[[int], Model]
    prepared: Prepared


class Work(NamedTuple):
    """A training to carry out, as in a `Trial`; `others` is an argument of `carry_out`."""

    place: str
    title: str
    settings: FinetuneConfig
    seed: int
    others: Sequence[TrialResult] | None


class Said(NamedTuple):
    """A line to print."""

    line: str


class At(NamedTuple):
    """The progress of the training, 0 to 1, and its live figures."""

    share: float
    note: str


class Ended(NamedTuple):
    """The message that the training has ended; everything is in its folder."""

    result: TrialResult


class Stopped(NamedTuple):
    """The message that the training was stopped on request; everything is saved."""

    how: str


def serve(connection: Connection) -> None:
    """Train what the process at the other end sends, until the connection closes."""
    try:
        place: Workplace = receive(connection)
        torch.set_num_threads(place.threads)
        signal.signal(signal.SIGTERM, _stop)
        parent = _Parent(connection)
        while True:
            message: Material | Work = receive(connection)
            if isinstance(message, Material):
                material = message
            else:
                parent.send(_done(message, material, place, parent))
    except Gone:
        os._exit(0)


def _stop(number: int, frame: FrameType | None) -> None:
    """Interrupt outside of training steps; within them, `fit` finishes the current step."""
    raise KeyboardInterrupt


def _done(
    work: Work, material: Material, place: Workplace, parent: _Parent
) -> Ended | Stopped | Failed:
    """Carry out a training; SIGTERM is unblocked only meanwhile."""
    trial = Trial(
        place=work.place,
        title=work.title,
        settings=work.settings,
        seed=work.seed,
        make_model=material.make_model,
        prepared=material.prepared,
    )
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        try:
            with shown_on(parent):
                result = carry_out(trial, place.run, work.others, tensorboard=place.tensorboard)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    except Interrupted as stopped:
        return Stopped(str(stopped))
    except KeyboardInterrupt:
        return Stopped("stopped")
    except Exception as error:
        return failure(error)
    return Ended(result)


class _Parent:
    """An output that prints lines and progress bars in the parent process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def say(self, line: str) -> None:
        """Send a line to print."""
        self.send(Said(line))

    def bar(self, description: str, total: float | None, unit: str) -> _FarBar:
        """Return a progress bar of the parent process, labelled with the name of the training."""
        return _FarBar(self, total or 1.0)

    def send(self, message: object) -> None:
        """Send a message in one piece despite signals; exit if the parent process is gone."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            self._connection.send_bytes(pickled(message))
        except OSError:
            os._exit(1)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _FarBar:
    """A progress bar shown by the parent process."""

    def __init__(self, parent: _Parent, total: float) -> None:
        self._parent = parent
        self._total = total
        self._done = 0.0
        self._note = ""
        self._last_sent = -_SECONDS_BETWEEN_SHARES

    def advance(self, amount: float = 1) -> None:
        """Advance by a number of units."""
        self.move_to(self._done + amount)

    def move_to(self, done: float) -> None:
        """Move to an absolute number of units."""
        self._done = done
        now = time.monotonic()
        if now - self._last_sent >= _SECONDS_BETWEEN_SHARES:
            self._last_sent = now
            self._parent.send(At(done / self._total, self._note))

    def note(self, text: str) -> None:
        """Set the live figures sent with the next progress message."""
        self._note = text
