"""Processes that each carry out one training after the other, and the parent's side of them.

They read no files: the data they train on comes from the parent, read, checked and encoded. They
save and exit when the parent is stopped."""

from __future__ import annotations

import operator
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
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
from bertsmith.recipes.finetune.trial import Supervision, Trial, TrialResult, execute_trial
from bertsmith.training.processes import Worker, WorkerFailure, describe_failure, pickled, receive

# at most this often, so that progress messages take no time from training
_SECONDS_BETWEEN_UPDATES = 0.5


class WorkerSettings(NamedTuple):
    """The folder of the run, the threads of the process, and whether TensorBoard reads the log."""

    run: Path
    threads: int
    tensorboard: bool


class TrialInputs(NamedTuple):
    """The model, the data and the supervision of the trainings that follow, as in a `Trial`."""

    make_model: Callable[[int], Model]
    prepared: Prepared
    supervision: Supervision


class TrialRequest(NamedTuple):
    """A training to carry out, as in a `Trial`; `others` is an argument of `execute_trial`."""

    subfolder: str
    title: str
    settings: FinetuneSettings
    seed: int
    others: Sequence[TrialResult] | None


# a process answers with lines to print and `TrialProgress`, and at the end with a `TrialResult`,
# when everything is in its folder, with `TrialStopped`, or with `WorkerFailure`


class TrialProgress(NamedTuple):
    """The progress of the training, 0 to 1, and its live figures."""

    share: float
    note: str


class TrialStopped(NamedTuple):
    """The message that the training was stopped on request; everything is saved."""

    message: str


def serve(connection: Connection) -> None:
    """Train what the process at the other end sends, until the connection closes."""
    settings: WorkerSettings = receive(connection)
    torch.set_num_threads(settings.threads)
    signal.signal(signal.SIGTERM, _stop)
    parent = _ParentScreen(connection)
    while True:
        message: TrialInputs | TrialRequest = receive(connection)
        if isinstance(message, TrialInputs):
            inputs = message
        else:
            parent.send(_train(message, inputs, settings, parent))


def _stop(number: int, frame: FrameType | None) -> None:
    """Interrupt outside of training steps; within them, `fit` finishes the current step."""
    raise KeyboardInterrupt


def _train(
    request: TrialRequest, inputs: TrialInputs, worker: WorkerSettings, parent: _ParentScreen
) -> TrialResult | TrialStopped | WorkerFailure:
    """Carry out a training; SIGTERM is unblocked only meanwhile."""
    trial = Trial(
        subfolder=request.subfolder,
        title=request.title,
        settings=request.settings,
        seed=request.seed,
        make_model=inputs.make_model,
        prepared=inputs.prepared,
        supervision=inputs.supervision,
    )
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        try:
            with shown_on(parent):
                result = execute_trial(
                    trial, worker.run, request.others, tensorboard=worker.tensorboard
                )
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    except Interrupted as stopped:
        return TrialStopped(str(stopped))
    except KeyboardInterrupt:
        return TrialStopped("stopped")
    except Exception as error:
        return describe_failure(error)
    return result


class _ParentScreen:
    """An output that prints lines and progress bars in the parent process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def say(self, line: str) -> None:
        """Send a line to print."""
        self.send(line)

    def bar(self, description: str, total: float | None, unit: str) -> _RemoteBar:
        """Return a progress bar of the parent process, labelled with the name of the training."""
        return _RemoteBar(self, total or 1.0)

    def send(self, message: object) -> None:
        """Send a message in one piece despite signals; exit if the parent process is gone."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            self._connection.send_bytes(pickled(message))
        except OSError:
            os._exit(1)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _RemoteBar:
    """A progress bar shown by the parent process."""

    def __init__(self, parent: _ParentScreen, total: float) -> None:
        self._parent = parent
        self._total = total
        self._done = 0.0
        self._note = ""
        self._last_sent = -_SECONDS_BETWEEN_UPDATES

    def advance(self, amount: float = 1) -> None:
        """Advance by a number of units."""
        self.move_to(self._done + amount)

    def move_to(self, done: float) -> None:
        """Move to an absolute number of units."""
        self._done = done
        now = time.monotonic()
        if now - self._last_sent >= _SECONDS_BETWEEN_UPDATES:
            self._last_sent = now
            self._parent.send(TrialProgress(done / self._total, self._note))

    def note(self, text: str) -> None:
        """Set the live figures sent with the next progress message."""
        self._note = text


# interval at which Ctrl-C is noticed
_POLL_SECONDS = 0.2


class _TrialWorker(Worker):
    """A worker process; `trial` is its current training."""

    def __init__(self, settings: WorkerSettings, at_once: int) -> None:
        super().__init__(serve)
        self.trial: Trial | None = None
        self.inputs: TrialInputs | None = None
        self.stop_requested = False
        self._at_once = at_once
        self.send(settings)

    def died(self, status: int) -> WorkerDied:
        """Return the error for a process that has died."""
        title = "a process that is to train" if self.trial is None else self.trial.title
        return WorkerDied(
            f"{title}: the process has died (status {status}), perhaps because memory ran out",
            remedy=f"give the same command again with --side-by-side {max(1, self._at_once - 1)}: "
            "it resumes with what the others have saved",
        )


class TrialPool:
    """Worker processes, started when first needed."""

    def __init__(self, settings: WorkerSettings, at_once: int) -> None:
        self._settings = settings
        self.at_once = at_once
        self._workers: list[_TrialWorker] = []
        self._pickled: tuple[TrialInputs, bytes] | None = None

    def train(
        self,
        trials: Sequence[Trial],
        others: Callable[[], Sequence[TrialResult] | None],
        ended: Callable[[Trial, TrialResult], None],
    ) -> None:
        """Carry out all trials, calling `ended` for each; `others` as for `execute_trial`.

        Raises `Interrupted` when all that were started are saved; what a training raises, or
        `WorkerDied`, when the others are.
        """
        waiting, stops, errors = deque(trials), dict[str, str](), list[Exception]()
        title = f"{counted(len(trials), 'training')}, {min(self.at_once, len(trials))} at once"
        with interruptions() as stop_requested, progress_of_several(title, len(trials)) as bars:
            while waiting or self._busy():
                if stop_requested() or stops or errors:
                    waiting.clear()
                    self._request_stop()
                try:
                    self._assign(waiting, others, bars)
                    # one at a time: a process that is done has its next training before `ended`
                    # is called for another
                    for worker in self._ready()[:1]:
                        self._handle(worker, ended, stops, bars)
                except Exception as error:
                    errors.append(error)
        self._pickled = None
        if errors:
            raise errors[0]
        if stops or stop_requested():
            messages = (
                f"{trial.title} {stops[trial.title]}" for trial in trials if trial.title in stops
            )
            raise Interrupted(" and ".join(messages) or "stopped")

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()

    def _busy(self) -> list[_TrialWorker]:
        return [worker for worker in self._workers if worker.trial is not None]

    def _request_stop(self) -> None:
        for worker in self._busy():
            if not worker.stop_requested:
                worker.stop_requested = True
                worker.ask_to_stop()

    def _assign(
        self, waiting: deque[Trial], others: Callable[[], Sequence[TrialResult] | None], bars: Bars
    ) -> None:
        """Give every idle process a training."""
        while len(self._workers) < min(self.at_once, len(self._busy()) + len(waiting)):
            self._workers.append(_TrialWorker(self._settings, self.at_once))
        for worker in self._workers:
            if worker.trial is None and waiting:
                trial = waiting.popleft()
                # before the process counts as busy: it would be waited for, where memory runs out
                inputs, pickled_inputs = self._pickle_inputs(trial)
                worker.trial = trial
                if worker.inputs is not inputs:
                    worker.inputs = inputs
                    worker.send_pickled(pickled_inputs)
                worker.send(
                    TrialRequest(trial.subfolder, trial.title, trial.settings, trial.seed, others())
                )
                bars.move_to(trial.title, 0.0)

    def _pickle_inputs(self, trial: Trial) -> tuple[TrialInputs, bytes]:
        """Return the inputs of a training, pickled once for all that share them."""
        inputs = TrialInputs(trial.make_model, trial.prepared, trial.supervision)
        if self._pickled is None or any(map(operator.is_not, self._pickled[0], inputs)):
            self._pickled = inputs, pickled(inputs)
        return self._pickled

    def _ready(self) -> list[_TrialWorker]:
        """Return the busy processes that have sent something, or have died."""
        busy = self._busy()
        connections = wait([worker.connection for worker in busy], _POLL_SECONDS)
        return [worker for worker in busy if worker.connection in connections]

    def _handle(
        self,
        worker: _TrialWorker,
        ended: Callable[[Trial, TrialResult], None],
        stops: dict[str, str],
        bars: Bars,
    ) -> None:
        trial = worker.trial
        assert trial is not None
        try:
            message = worker.receive()
        except Exception:
            worker.trial = None
            raise
        if isinstance(message, str):
            say(message)
        elif isinstance(message, TrialProgress):
            bars.move_to(trial.title, message.share, message.note)
        else:
            worker.trial = None
            bars.end(trial.title)
            if isinstance(message, TrialResult):
                ended(trial, message)
            else:
                assert isinstance(message, TrialStopped)
                stops[trial.title] = message.message
