"""Processes that each carry out one training after the other, and the parent's side of them.

They read no files: the data they train on comes from the parent, read, checked and encoded. They
save and exit when the parent is stopped."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch

from bertsmith.core.errors import WorkerDied
from bertsmith.core.log import Bars, progress_of_several, say, shown_on
from bertsmith.core.printable import counted
from bertsmith.core.signals import Interrupted, interruptions
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import Prepared
from bertsmith.recipes.finetune.trial import Supervision, Trial, TrialResult, carry_out
from bertsmith.training.processes import Worker, WorkerFailure, describe_failure, pickled, receive

# at most this often, so that progress messages take no time from training
_SECONDS_BETWEEN_SHARES = 0.5


class Workplace(NamedTuple):
    """The folder of the run, the threads of the process, and whether TensorBoard reads the log."""

    run: Path
    threads: int
    tensorboard: bool


class Material(NamedTuple):
    """The model, the data and the supervision of the trainings that follow, as in a `Trial`."""

    make_model: Callable[[int], Model]
    prepared: Prepared
    supervision: Supervision


class Work(NamedTuple):
    """A training to carry out, as in a `Trial`; `others` is an argument of `carry_out`."""

    place: str
    title: str
    settings: FinetuneSettings
    seed: int
    others: Sequence[TrialResult] | None


# a process answers with lines to print, with `At`, and in the end with a `TrialResult`, everything
# being in its folder, with `Stopped`, or with `WorkerFailure`


class At(NamedTuple):
    """The progress of the training, 0 to 1, and its live figures."""

    share: float
    note: str


class Stopped(NamedTuple):
    """The message that the training was stopped on request; everything is saved."""

    how: str


def serve(connection: Connection) -> None:
    """Train what the process at the other end sends, until the connection closes."""
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


def _stop(number: int, frame: FrameType | None) -> None:
    """Interrupt outside of training steps; within them, `fit` finishes the current step."""
    raise KeyboardInterrupt


def _done(
    work: Work, material: Material, place: Workplace, parent: _Parent
) -> TrialResult | Stopped | WorkerFailure:
    """Carry out a training; SIGTERM is unblocked only meanwhile."""
    trial = Trial(
        place=work.place,
        title=work.title,
        settings=work.settings,
        seed=work.seed,
        make_model=material.make_model,
        prepared=material.prepared,
        supervision=material.supervision,
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
        return describe_failure(error)
    return result


class _Parent:
    """An output that prints lines and progress bars in the parent process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def say(self, line: str) -> None:
        """Send a line to print."""
        self.send(line)

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


# interval at which Ctrl-C is noticed
_LOOK_SECONDS = 0.2


class _Trainer(Worker):
    """A worker process; `trial` is its current training."""

    def __init__(self, place: Workplace, at_once: int) -> None:
        super().__init__(serve)
        self.trial: Trial | None = None
        self.material: Material | None = None
        self.is_to_stop = False
        self._at_once = at_once
        self.send(place)

    def died(self, status: int) -> WorkerDied:
        """Return the error for a process that has died."""
        what = "a process that is to train" if self.trial is None else self.trial.title
        return WorkerDied(
            f"{what}: the process has died (status {status}), perhaps for want of memory",
            remedy=f"give the same command again with --side-by-side {max(1, self._at_once - 1)}: "
            "it goes on, with what the others have saved",
        )


class Trainers:
    """Worker processes, started when first needed."""

    def __init__(self, place: Workplace, at_once: int) -> None:
        self._place = place
        self.at_once = at_once
        self._trainers: list[_Trainer] = []
        self._packed: tuple[Material, bytes] | None = None

    def train(
        self,
        trials: Sequence[Trial],
        others: Callable[[], Sequence[TrialResult] | None],
        ended: Callable[[Trial, TrialResult], None],
    ) -> None:
        """Carry out all trials, calling `ended` for each; `others` as for `carry_out`.

        Raises `Interrupted` when all that were started are saved; what a training raises, or
        `WorkerDied`, when the others are.
        """
        waiting, stops, errors = deque(trials), dict[str, str](), list[Exception]()
        title = f"{counted(len(trials), 'training')}, {min(self.at_once, len(trials))} at once"
        with interruptions() as asked, progress_of_several(title, len(trials)) as bars:
            while waiting or self._at_work():
                if asked() or stops or errors:
                    waiting.clear()
                    self._ask_to_stop()
                try:
                    self._hand_out(waiting, others, bars)
                    for trainer in self._speaking():
                        self._hear(trainer, ended, stops, bars)
                except Exception as error:
                    errors.append(error)
        self._packed = None
        if errors:
            raise errors[0]
        if stops or asked():
            told = (
                f"{trial.title} {stops[trial.title]}" for trial in trials if trial.title in stops
            )
            raise Interrupted(" and ".join(told) or "stopped")

    def close(self) -> None:
        """End the processes."""
        for trainer in self._trainers:
            trainer.close()

    def _at_work(self) -> list[_Trainer]:
        return [trainer for trainer in self._trainers if trainer.trial is not None]

    def _ask_to_stop(self) -> None:
        for trainer in self._at_work():
            if not trainer.is_to_stop:
                trainer.is_to_stop = True
                trainer.ask_to_stop()

    def _hand_out(
        self,
        waiting: deque[Trial],
        others: Callable[[], Sequence[TrialResult] | None],
        bars: Bars,
    ) -> None:
        """Give every idle process a training."""
        while len(self._trainers) < min(self.at_once, len(self._at_work()) + len(waiting)):
            self._trainers.append(_Trainer(self._place, self.at_once))
        for trainer in self._trainers:
            if trainer.trial is None and waiting:
                trainer.trial = trial = waiting.popleft()
                material, packed = self._pack(trial)
                if trainer.material is not material:
                    trainer.material = material
                    trainer.send_pickled(packed)
                trainer.send(Work(trial.place, trial.title, trial.settings, trial.seed, others()))
                bars.move_to(trial.title, 0.0)

    def _pack(self, trial: Trial) -> tuple[Material, bytes]:
        """Return the material of a training, pickled once for all that share it."""
        if self._packed is not None:
            known, own = self._packed[0], (trial.make_model, trial.prepared, trial.supervision)
            if all(one is other for one, other in zip(known, own, strict=True)):
                return self._packed
        material = Material(trial.make_model, trial.prepared, trial.supervision)
        self._packed = material, pickled(material)
        return self._packed

    def _speaking(self) -> list[_Trainer]:
        """Return the busy processes that have sent something, or have died."""
        at_work = self._at_work()
        ready = wait([trainer.connection for trainer in at_work], _LOOK_SECONDS)
        return [trainer for trainer in at_work if trainer.connection in ready]

    def _hear(
        self,
        trainer: _Trainer,
        ended: Callable[[Trial, TrialResult], None],
        stops: dict[str, str],
        bars: Bars,
    ) -> None:
        trial = trainer.trial
        assert trial is not None
        try:
            told = trainer.receive()
        except Exception:
            trainer.trial = None
            raise
        if isinstance(told, str):
            say(told)
        elif isinstance(told, At):
            bars.move_to(trial.title, told.share, told.note)
        else:
            trainer.trial = None
            bars.end(trial.title)
            if isinstance(told, TrialResult):
                ended(trial, told)
            else:
                assert isinstance(told, Stopped)
                stops[trial.title] = told.how


@contextmanager
def trainers(place: Workplace, at_once: int) -> Iterator[Trainers | None]:
    """Yield processes for so many trainings at once, and end them; None for a single one."""
    if at_once == 1:
        yield None
        return
    processes = Trainers(place, at_once)
    try:
        yield processes
    finally:
        processes.close()
