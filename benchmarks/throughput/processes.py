"""Each side in a process of its own, so that neither feels what the other does to memory."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

import torch

from throughput.sequences import Sequences
from throughput.sides import Plan, Side, Step, build


@dataclass(frozen=True)
class Stretch:
    """Some steps, timed."""

    steps: int
    tokens: int
    places: int
    flops: float
    seconds: float
    loss: float

    @property
    def speed(self) -> float:
        """Tokens of text a second."""
        return self.tokens / self.seconds


class Runner:
    """One side, waiting in its process to be asked for some seconds of training."""

    def __init__(self, plan: Plan, sequences: Sequences) -> None:
        context = multiprocessing.get_context("spawn")
        self.plan = plan
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, plan, sequences), daemon=True)
        self._process.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._here.send(None)
        self._process.join(30)

    def run(self, sequences: int, seconds: float) -> Stretch:
        """Train for so long, two steps at least, on batches of so many of the longest sequences."""
        self._here.send((sequences, seconds))
        answer = self._here.recv()
        if answer is None:
            raise MemoryError(f"{self.plan.side}: {sequences} sequences do not fit on the device")
        assert isinstance(answer, Stretch)
        return answer

    def best_batch(self, candidates: Sequence[int], seconds: float) -> int:
        """Return the fastest batch; none is larger than one a fifth slower or one too large."""
        if len(candidates) == 1:
            self.run(candidates[0], 0.0)
            return candidates[0]
        best, speed = candidates[0], 0.0
        for candidate in candidates:
            try:
                self.run(candidate, 0.0)
                found = self.run(candidate, seconds).speed
            except MemoryError:
                if not speed:
                    raise
                break
            if found > speed:
                best, speed = candidate, found
            elif found < 0.8 * speed:
                break
        return best


def _serve(pipe: Connection, plan: Plan, sequences: Sequences) -> None:
    side = build(plan, sequences)
    while (asked := pipe.recv()) is not None:
        try:
            answer = _stretch(side, *asked)
        except torch.OutOfMemoryError:
            answer = None
        # the other sides' processes use the same device
        torch.cuda.empty_cache()
        pipe.send(answer)


def _stretch(side: Side, sequences: int, limit: float) -> Stretch:
    if torch.cuda.is_available():
        # the memory that was given back is asked for again
        side.step(sequences)
    began, steps = time.perf_counter(), list[Step]()
    while len(steps) < 2 or time.perf_counter() - began < limit:
        steps.append(side.step(sequences))
    seconds = time.perf_counter() - began
    return Stretch(
        len(steps),
        sum(step.tokens for step in steps),
        sum(step.places for step in steps),
        sum(step.flops for step in steps),
        seconds,
        steps[-1].loss,
    )
