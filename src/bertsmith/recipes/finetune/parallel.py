"""Parallel training, each trial in a process of its own with a part of the processor's cores.

The processes read no files: the data they train on comes from this process, read, checked and
encoded. They get one training after the other, and save and exit when this process is stopped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Literal

import numpy as np
import torch

from bertsmith.core.errors import ConfigError, WorkerDied
from bertsmith.core.log import Bars, progress_of_several, say
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.settings import FinetuneConfig
from bertsmith.recipes.finetune.trial import Prepared, TrialResult
from bertsmith.recipes.finetune.trial_folder import Trial
from bertsmith.recipes.finetune.worker import (
    At,
    Ended,
    Material,
    Said,
    Stopped,
    Work,
    Workplace,
    serve,
)
from bertsmith.recipes.room import WORKING_ROOM, gigabytes, layer_activations
from bertsmith.training.interruption import Interrupted, interruptions
from bertsmith.training.processes import Worker, pickled

AtOnce = int | Literal["auto"]
# exponent of the speed by threads: 1.54 times as fast with two (docs/experiments/fine-tuning.md)
_GAIN = 0.62
# share of the free memory used, the rest being reserve
_TAKEN = 0.8
# factor for fragmentation: tensors of a batch are in blocks of many sizes (precision.py)
_PIECES = 2.5
# bytes per example: its row, and its arrays of ids
_EXAMPLE = 1500


@dataclass(frozen=True, kw_only=True)
class ParallelTrials:
    """The distribution chosen: trainings at once, threads of each, and why; "" for no choice."""

    at_once: int
    threads: int
    why: str

    def __str__(self) -> str:
        if not self.why:
            return ""
        threads = f"{self.threads} thread" + "s" * (self.threads > 1)
        if self.at_once == 1:
            return f"one training after the other, with {threads}: {self.why}"
        return f"{self.at_once} trainings side by side, with {threads} each: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The resources for training: cores, free bytes if known, and the device."""

    cores: int
    free: int | None
    device: str


def parallel_trials(
    asked: AtOnce,
    counts: Sequence[int],
    need: int,
    machine: Machine,
    threads: int | None = None,
) -> ParallelTrials:
    """Return how to run several lists of trainings, of `counts`, each training taking `need` bytes.

    A number in `asked` is kept; auto chooses the fastest distribution that fits into memory.
    `threads` are those of a resumed run. Raises `ConfigError` for fewer than one at once.
    """
    cores = machine.cores
    if asked != "auto":
        if asked < 1:
            raise ConfigError(f"--side-by-side is {asked}", remedy="give auto, or at least 1")
        at_once = min(asked, max(counts))
        each = threads or max(1, cores // at_once)
        why = "as asked for" if max(counts) > 1 else ""
        return ParallelTrials(at_once=at_once, threads=each, why=why)
    if max(counts) == 1:
        return ParallelTrials(at_once=1, threads=threads or cores, why="")
    alone = _why_alone(need, machine)
    if alone:
        return ParallelTrials(at_once=1, threads=threads or cores, why=alone)
    assert machine.free is not None
    most = min(cores // (threads or 1), max(counts), int(_TAKEN * machine.free) // need)
    choices = range(1, max(1, most) + 1)
    at_once = min(choices, key=lambda number: _time(number, counts, threads or cores // number))
    return ParallelTrials(
        at_once=at_once,
        threads=threads or cores // at_once,
        why=f"{cores} cores, and each may take {gigabytes(need)} of {gigabytes(machine.free)} free",
    )


def _why_alone(need: int, machine: Machine) -> str:
    """Return why only one training at a time is possible, "" if more are."""
    if machine.device != "cpu":
        return "there is one device for all"
    if machine.cores == 1:
        return "there is one core"
    if machine.free is None:
        return "how much memory is free is not known here"
    if int(_TAKEN * machine.free) < 2 * need:
        return f"each may take {gigabytes(need)}, and {gigabytes(machine.free)} are free"
    return ""


def _time(at_once: int, counts: Sequence[int], threads: int) -> float:
    """Return the estimated time of the lists, in trainings of one thread."""
    rounds = sum(-(-count // at_once) for count in counts)
    return rounds / math.pow(threads, _GAIN)


def training_need(model: Model, prepared: Prepared, settings: FinetuneConfig) -> int:
    """Return the peak memory in bytes of a process that trains such a model, from the sizes.

    `model` is the initial model, without its new head. It is an upper estimate: all batches are
    assumed to be of the longest examples.
    """
    encoder, half = model.config.encoder, settings.precision == "bf16"
    values = sum(parameter.numel() for parameter in model.encoder.parameters())
    # float32 weights, gradients, two moments; weights in bfloat16; weights and moments while saved
    weights = (16 + 2 * half + 12) * values
    lengths = np.sort(prepared.train.lengths)[-settings.batch :]
    longest = min(int(lengths[-1]), prepared.room.longest)
    kept = int(lengths.sum()) * layer_activations(encoder, longest, half=half)
    examples = _EXAMPLE * (len(prepared.train) + len(prepared.dev))
    return int(WORKING_ROOM + weights + _PIECES * kept + examples)


@contextmanager
def threads_of_torch(count: int) -> Iterator[None]:
    """Set torch's number of threads, and restore the previous one afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
        self.tell(place)

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
        title = f"{len(trials)} trainings, {min(self.at_once, len(trials))} at once"
        with interruptions() as requests, progress_of_several(title, len(trials)) as bars:
            while waiting or self._at_work():
                if requests.asked() or stops or errors:
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
        if stops or requests.asked():
            told = (f"{each.title} {stops[each.title]}" for each in trials if each.title in stops)
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
                    trainer.tell_pickled(packed)
                trainer.tell(Work(trial.place, trial.title, trial.settings, trial.seed, others()))
                bars.move_to(trial.title, 0.0)

    def _pack(self, trial: Trial) -> tuple[Material, bytes]:
        """Return the material of a training, pickled once for all that share it."""
        if self._packed is not None:
            known = self._packed[0]
            if known.make_model is trial.make_model and known.prepared is trial.prepared:
                return self._packed
        material = Material(trial.make_model, trial.prepared)
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
            told = trainer.hear()
        except Exception:
            trainer.trial = None
            raise
        if isinstance(told, Said):
            say(told.line)
        elif isinstance(told, At):
            bars.move_to(trial.title, told.share, told.note)
        else:
            trainer.trial = None
            bars.end(trial.title)
            if isinstance(told, Ended):
                ended(trial, told.result)
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
