"""What a process does that trains beside others, for the one that started it (parallel.py)."""

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

# so that showing how far it is takes no time from training
_SECONDS_BETWEEN_SHARES = 0.5


class Workplace(NamedTuple):
    """The folder of the run, the threads of the process, and whether TensorBoard reads the log."""

    run: Path
    threads: int
    tensorboard: bool


class Material(NamedTuple):
    """What the trainings that follow are made of, as a `Trial` has it."""

    make_model: Callable[[int], Model]
    prepared: Prepared


class Work(NamedTuple):
    """A training to carry out, as a `Trial` has it; `others` is what `carry_out` wants."""

    place: str
    title: str
    settings: FinetuneConfig
    seed: int
    others: Sequence[TrialResult] | None


class Said(NamedTuple):
    """A line to be shown."""

    line: str


class At(NamedTuple):
    """How far the training is, 0 to 1, and its live figures."""

    share: float
    note: str


class Ended(NamedTuple):
    """The training has ended; everything is in its folder."""

    result: TrialResult


class Stopped(NamedTuple):
    """The training was stopped, as was asked for; everything is saved."""

    how: str


def serve(connection: Connection) -> None:
    """Train what the process at the other end sends, until it goes."""
    try:
        place: Workplace = receive(connection)
        torch.set_num_threads(place.threads)
        signal.signal(signal.SIGTERM, _stop)
        parent = _Parent(connection)
        while True:
            told: Material | Work = receive(connection)
            if isinstance(told, Material):
                material = told
            else:
                parent.send(_done(told, material, place, parent))
    except Gone:
        os._exit(0)


def _stop(number: int, frame: FrameType | None) -> None:
    """Outside the steps of training, where `fit` ends the step in hand."""
    raise KeyboardInterrupt


def _done(
    work: Work, material: Material, place: Workplace, parent: _Parent
) -> Ended | Stopped | Failed:
    """Carry out a training, which alone the signal may interrupt."""
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
    """Shows lines and bars in the process that this one works for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def say(self, line: str) -> None:
        """Let it show a line."""
        self.send(Said(line))

    def bar(self, description: str, total: float | None, unit: str) -> _FarBar:
        """A bar over there, which has the name of the training."""
        return _FarBar(self, total or 1.0)

    def send(self, message: object) -> None:
        """Send a message, whole whatever happens; nothing is left to do where nobody hears it."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            self._connection.send_bytes(pickled(message))
        except OSError:
            os._exit(1)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _FarBar:
    """A bar that another process shows."""

    def __init__(self, parent: _Parent, total: float) -> None:
        self._parent = parent
        self._total = total
        self._done = 0.0
        self._note = ""
        self._told = -_SECONDS_BETWEEN_SHARES

    def advance(self, amount: float = 1) -> None:
        """Move on by some units."""
        self.move_to(self._done + amount)

    def move_to(self, done: float) -> None:
        """Move to an absolute number of units."""
        self._done = done
        now = time.monotonic()
        if now - self._told >= _SECONDS_BETWEEN_SHARES:
            self._told = now
            self._parent.send(At(done / self._total, self._note))

    def note(self, text: str) -> None:
        """Tell live figures with the next share."""
        self._note = text
