"""The gradients of a run's steps, by threads of one process or by local replicas of one thread.

On quiet cores threads are often faster, beside other programs replicas are, and a machine does not
stay as it was when the run began. A run on a processor may therefore have an alternative, which is
tried soon after the beginning and when the speed of the steps has changed, and adopted if it is
faster (docs/experiments/threads-and-busy-machines.md).

What is computed differs in the last bits, and in what dropout masks. The steps at which a run has
changed are in its folder, each before the step is computed, so that a run that is killed and
resumed computes every step as it was computed before.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from types import TracebackType
from typing import Self

import torch

from bertsmith.core.errors import UserError, WorkerDied, out_of_memory
from bertsmith.core.log import say
from bertsmith.network.batch import Batch
from bertsmith.training.config import FitConfig, Parallelism
from bertsmith.training.gradients import Gradient, compute_gradient
from bertsmith.training.local import (
    PARTS_PER_PROCESS,
    LocalReplicas,
    local_replicas,
    processes_for,
)
from bertsmith.training.replicas import LossFunction, Replica
from bertsmith.training.run_folder import RunFolder

# steps whose median is the speed, and gradients of the alternative in a trial, after a first one
_RECENT, _TRIED = 8, 3
# a speed has changed if it is this many times the former, or the former this many times it
_CHANGED = 1.25
_CLEARLY_FASTER = 1.05
# of the time, what trials may have taken after a change, and where nothing has changed
TRIAL_SHARE, _UNCHANGED_SHARE = 0.05, 0.002
# to start processes for the first trial
_START_SECONDS = 2.0
# steps within which a second process that dies ends the run: memory may be short
_BETWEEN_DEATHS = 100


class GradientComputer:
    """Computes the gradients of steps, by the parallelism of a run or its alternative."""

    def __init__(
        self,
        replica: Replica,
        objective: LossFunction,
        config: FitConfig,
        folder: RunFolder | None = None,
    ) -> None:
        """The parallelism that a run begins with has the threads that torch has now.

        Of several ranks each computes in one process, whatever one process would do. Raises
        `RunFolderError` for a damaged record of changes.
        """
        self._replica, self._objective, self._config = replica, objective, config
        # local replicas do not add the gradients of other ranks to theirs
        alone = replica.world.size == 1
        self._folder = folder if alone else None
        replicas = config.replicas if alone else 1
        self._begun = Parallelism(threads=torch.get_num_threads(), replicas=replicas)
        self._alternative = (config.alternative if alone else None) or self._begun
        self._changes = [] if self._folder is None else self._folder.parallelism_changes()
        self._current = self._begun
        self._open = ExitStack()
        self._local: LocalReplicas | None = None
        self._timed: deque[float] = deque(maxlen=_RECENT)
        # the choice that a run begins or is resumed with has been tried for a second at most
        self._usual = 0.0
        self._death = -_BETWEEN_DEATHS
        self._began, self._trials_seconds = time.perf_counter(), 0.0
        self._trial_seconds = 0.0

    def __enter__(self) -> Self:
        self._adopt(self._begun)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._close()
        _set_threads(self._begun.threads)

    def compute(
        self, batches: Sequence[Batch], step: int, stopping: Callable[[], bool] = lambda: False
    ) -> Gradient | None:
        """Compute the gradient of a step, as `compute_gradient` does.

        If a local replica dies, another one takes its place, and the step is computed again, which
        changes no bit. Raises `WorkerDied` if that has happened a short while ago.
        """
        self._adopt(self._recorded(step))
        started = time.perf_counter()
        try:
            gradient = self._gradient(batches, step, self._local, stopping)
        except WorkerDied as error:
            if step - self._death < _BETWEEN_DEATHS:
                raise
            say(f"step {step + 1}: {error.problem}; another one takes its place")
            self._death = step
            self._replica.trained.zero_grad(set_to_none=True)
            self._close()
            self._adopt(self._current)
            gradient = self._gradient(batches, step, self._local, stopping)
        if gradient is not None:
            self._timed.append(gradient.tokens / (time.perf_counter() - started))
        return gradient

    def adapt(
        self,
        batches: Sequence[Batch],
        step: int,
        seconds_left: float = math.inf,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Try the alternative if a trial is due, and compute from `step` on by what is faster.

        Its gradients are those of the first of `batches`, and are not used. It is worth a trial
        only if enough seconds are left for steps. Raises `DiskError`.
        """
        if self._alternative == self._begun or not self._due(batches[0], step, seconds_left):
            return
        other = self._alternative if self._current == self._begun else self._begun
        # of the last steps alone, as the speed may have changed amid those that count
        started, speed = time.perf_counter(), median([*self._timed][-_TRIED:])
        tried = self._try(other, batches[:1], step, stopping)
        self._usual = speed
        if tried > _CLEARLY_FASTER * speed:
            say(
                f"step {step + 1}: from here on with {other}: {tried:,.0f} tokens/s against "
                f"{speed:,.0f} with {self._current}"
            )
            self._usual = tried
            self._changes.append((step, other))
            if self._folder is not None:
                self._folder.record_parallelism_changes(self._changes)
        self._adopt(self._recorded(step))
        self._timed.clear()
        self._trial_seconds = time.perf_counter() - started
        self._trials_seconds += self._trial_seconds

    def _recorded(self, step: int) -> Parallelism:
        """Return the parallelism of a step by the record of changes."""
        changes = [other for first, other in self._changes if first <= step]
        return changes[-1] if changes else self._begun

    def _due(self, batch: Batch, step: int, seconds_left: float) -> bool:
        """Return whether the alternative should be tried, within the share of time for trials."""
        if len(self._timed) < _RECENT or any(first >= step for first, _ in self._changes):
            return False
        speed = median(self._timed)
        unchanged = self._usual / _CHANGED < speed < self._usual * _CHANGED
        share = _UNCHANGED_SHARE if unchanged else TRIAL_SHARE
        first_seconds = _START_SECONDS + (1 + _TRIED) * batch.tokens / speed
        seconds = self._trial_seconds or first_seconds
        passed = time.perf_counter() - self._began
        return (
            self._trials_seconds + seconds <= share * passed
            and seconds <= TRIAL_SHARE * seconds_left
        )

    def _try(
        self,
        other: Parallelism,
        batches: Sequence[Batch],
        step: int,
        stopping: Callable[[], bool],
    ) -> float:
        """Return the tokens per second of another parallelism, 0 where it cannot be tried."""
        speeds = [0.0]
        try:
            local = self._opened() if other.replicas > 1 else None
            _set_threads(other.threads)
            for _ in range(1 + _TRIED):
                if stopping():
                    return 0.0
                started = time.perf_counter()
                gradient = self._gradient(batches, step, local)
                assert gradient is not None
                speeds.append(gradient.tokens / (time.perf_counter() - started))
        except (UserError, OSError, RuntimeError) as error:
            # there may be no room for more processes, or for what they compute
            if isinstance(error, RuntimeError) and out_of_memory(error) is None:
                raise
            return 0.0
        finally:
            self._replica.trained.zero_grad(set_to_none=True)
        # in the first, memory is new, and products are compiled
        return median(speeds[2:])

    def _gradient(
        self,
        batches: Sequence[Batch],
        step: int,
        local: LocalReplicas | None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Gradient | None:
        config = self._config
        return compute_gradient(
            self._replica, batches, config.seed, step, clip=config.max_gradient_norm,
            stopping=stopping, local=local,
        )  # fmt: skip

    def _adopt(self, parallelism: Parallelism) -> None:
        """Compute with a parallelism from now on."""
        if parallelism.replicas > 1:
            self._opened()
        else:
            self._close()
        _set_threads(parallelism.threads)
        self._current = parallelism

    def _opened(self) -> LocalReplicas:
        """Return the local replicas, started if there are none."""
        if self._local is None:
            replicas = max(self._begun.replicas, self._alternative.replicas)
            self._local = self._open.enter_context(
                local_replicas(
                    self._replica.model, self._objective, self._config.precision,
                    parts=PARTS_PER_PROCESS * replicas,
                    processes=processes_for(replicas),
                )
            )  # fmt: skip
        return self._local

    def _close(self) -> None:
        """End the local replicas, if there are any."""
        self._local = None
        self._open.close()


def _set_threads(count: int) -> None:
    """Set torch's number of threads unless it is this."""
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
