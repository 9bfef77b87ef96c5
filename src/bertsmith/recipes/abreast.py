"""How many trainings of a run go on at once, and with how many threads each.

The threads of a training decide how it rounds, so a run keeps those it was begun with; how many
trainings go on at once decides nothing but the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from bertsmith.errors import ConfigError
from bertsmith.models.model import Model
from bertsmith.recipes.finetune_settings import FinetuneConfig
from bertsmith.recipes.preflight_room import WORKING_ROOM, gigabytes, layer_activations
from bertsmith.recipes.trial import Prepared

AtOnce = int | Literal["auto"]
# a training's tokens/s grow so with its threads: 1.54 times as many with two (docs/log.md)
_GAIN = 0.62
# of the free memory, the rest being for what cannot be foreseen
_TAKEN = 0.8
# what a batch takes is kept in blocks of many sizes, which do not fit each other (precision.py)
_PIECES = 2.5
# of an example: its row, and its ids in arrays of their own
_EXAMPLE = 1500


@dataclass(frozen=True, kw_only=True)
class Abreast:
    """What was chosen: trainings at once, the threads of each, and why; "" for no choice."""

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
    """What there is to train on: its cores, the bytes that are free if known, and the device."""

    cores: int
    free: int | None
    device: str


def abreast(
    asked: AtOnce,
    counts: Sequence[int],
    need: int,
    machine: Machine,
    threads: int | None = None,
) -> Abreast:
    """How to make several lists of so many trainings, each training wanting `need` bytes.

    What is asked for holds; auto takes what should be fastest and has room. `threads` are those of
    a run that goes on. Raises `ConfigError` for fewer than one at once.
    """
    cores = machine.cores
    if asked != "auto":
        if asked < 1:
            raise ConfigError(f"--side-by-side is {asked}", remedy="give auto, or at least 1")
        at_once = min(asked, max(counts))
        each = threads or max(1, cores // at_once)
        why = "as asked for" if max(counts) > 1 else ""
        return Abreast(at_once=at_once, threads=each, why=why)
    if max(counts) == 1:
        return Abreast(at_once=1, threads=threads or cores, why="")
    alone = _why_alone(need, machine)
    if alone:
        return Abreast(at_once=1, threads=threads or cores, why=alone)
    assert machine.free is not None
    most = min(cores // (threads or 1), max(counts), int(_TAKEN * machine.free) // need)
    choices = range(1, max(1, most) + 1)
    at_once = min(choices, key=lambda number: _time(number, counts, threads or cores // number))
    return Abreast(
        at_once=at_once,
        threads=threads or cores // at_once,
        why=f"{cores} cores, and each may take {gigabytes(need)} of {gigabytes(machine.free)} free",
    )


def _why_alone(need: int, machine: Machine) -> str:
    """Why nothing but one training at a time is to be thought of, "" for no such reason."""
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
    """How long the lists take, in trainings of one thread."""
    rounds = sum(-(-count // at_once) for count in counts)
    return rounds / math.pow(threads, _GAIN)


def training_need(model: Model, prepared: Prepared, settings: FinetuneConfig) -> int:
    """Bytes that a process may grow to in which such a model is trained, from the sizes.

    `model` is what training starts from, its head apart. Too much rather than too little: batches
    are taken to be of the longest examples.
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
    """So many threads for torch, and those of before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
