"""Models that send signals and wait for each other in the middle of training, in any process.

Tests hand them to other processes, which find them here and not in a test's own module.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertsmith.core.errors import TrainingDiverged
from bertsmith.network.model import Model


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a model does at the beginning of a step of training, in this order."""

    number: int
    """The step, from 1."""
    meet: Path | None = None
    """A pipe: opened to be read by one, to be written by another, neither goes on before."""
    reads: bool = False
    """Which of the two this is."""
    stop_parent: bool = False
    """Send Ctrl-C to the process that started this one."""
    kill: bool = False
    """End this process at once."""
    kill_parent: bool = False
    """End the one that started it, and do nothing any more."""
    diverge: bool = False
    """Raise `TrainingDiverged`."""
    wait_for_end: bool = False
    """Wait until this process is asked to end."""

    def act(self) -> None:
        asked, end = threading.Event(), signal.getsignal(signal.SIGTERM)
        if self.wait_for_end:
            # not blocked here: the system would then give it to the thread that saves
            signal.signal(signal.SIGTERM, lambda *_: asked.set())
        if self.meet is not None:
            with self.meet.open("r" if self.reads else "w"):
                pass
        if self.stop_parent:
            os.kill(os.getppid(), signal.SIGINT)
        if self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kill_parent:
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        if self.diverge:
            raise TrainingDiverged(
                "the loss is no number", where="seed", remedy="lower --learning-rate"
            )
        if self.wait_for_end:
            while not asked.wait(0.01):
                pass
            signal.signal(signal.SIGTERM, end)
            signal.raise_signal(signal.SIGTERM)


@dataclass(frozen=True, kw_only=True)
class Signalling:
    """Makes a seed's model as `make` does, which acts in its steps, and counts them in a file."""

    make: Callable[[int], Model]
    steps: dict[int, Step] = field(default_factory=dict)
    counts: Path | None = None
    threads: int = 1

    def __call__(self, seed: int) -> Model:
        assert torch.get_num_threads() == self.threads
        model = self.make(seed)
        step, made = self.steps.get(seed), 0

        def begin(encoder: nn.Module, _: Any) -> None:  # noqa: ANN401
            nonlocal made
            if not encoder.training:
                return
            made += 1
            if self.counts is not None:
                with (self.counts / str(seed)).open("a", encoding="ascii") as file:
                    file.write(".")
            if step is not None and step.number == made:
                step.act()

        model.encoder.register_forward_pre_hook(begin)
        return model
