"""Trainings side by side, each in a process of its own with a part of the processor's cores.

The processes read nothing: what they train on comes from this one, read, checked and encoded. They
get one training after the other, and save and end when this one is asked to stop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait

from bertsmith.errors import WorkerDied
from bertsmith.log import Bars, progress_of_several, say
from bertsmith.recipes.trainer import At, Ended, Material, Said, Stopped, Work, Workplace, serve
from bertsmith.recipes.trial import TrialResult
from bertsmith.recipes.trial_folder import Trial
from bertsmith.training.interruption import Interrupted, interruptions
from bertsmith.training.processes import Worker, pickled

# how soon Ctrl-C is heeded
_LOOK_SECONDS = 0.2


class _Trainer(Worker):
    """A process that trains; `trial` is what it has in hand."""

    def __init__(self, place: Workplace, at_once: int) -> None:
        super().__init__(serve)
        self.trial: Trial | None = None
        self.material: Material | None = None
        self.is_to_stop = False
        self._at_once = at_once
        self.tell(place)

    def died(self, status: int) -> WorkerDied:
        """What there is to say of one that has died."""
        what = "a process that is to train" if self.trial is None else self.trial.title
        return WorkerDied(
            f"{what}: the process has died (status {status}), perhaps for want of memory",
            remedy=f"give the same command again with --side-by-side {max(1, self._at_once - 1)}: "
            "it goes on, with what the others have saved",
        )


class Trainers:
    """Processes that train, started when they are first needed."""

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
        """Carry out all of them, telling of each that has ended; `others` as for `carry_out`.

        Raises `Interrupted` when all that were begun are saved; what a training raises, or
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
        """Give every process that has none a training."""
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
        """What a training is made of, pickled once for all that are made of the same."""
        if self._packed is not None:
            known = self._packed[0]
            if known.make_model is trial.make_model and known.prepared is trial.prepared:
                return self._packed
        material = Material(trial.make_model, trial.prepared)
        self._packed = material, pickled(material)
        return self._packed

    def _speaking(self) -> list[_Trainer]:
        """Those at work that have something to say, or have died."""
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
    """Processes to train so many at once, ended in the end; None for one, which this one does."""
    if at_once == 1:
        yield None
        return
    processes = Trainers(place, at_once)
    try:
        yield processes
    finally:
        processes.close()
