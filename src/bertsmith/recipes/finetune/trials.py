"""All trainings of a run: their folders, the models to keep, and how many train at once.

    seeds/seed-0/                    a seed with the settings of the run
    grid/rate-2e-05-batch-32-.../    a cell of the grid
    curve/256-seed-0/                a seed with fewer examples
    random/seed-0/                   a seed of the same network from random weights

They are trained one after the other here, or in parallel by worker processes (workers.py), with
identical results bit for bit."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from bertsmith.core.errors import ConfigError, RunFolderError
from bertsmith.core.files import partial_file, replaced_file
from bertsmith.core.printable import counted
from bertsmith.network.model import Model
from bertsmith.network.torch_state import threads_of_torch
from bertsmith.recipes.finetune.config import AtOnce, FinetuneSettings
from bertsmith.recipes.finetune.inputs import Prepared
from bertsmith.recipes.finetune.trial import (
    Trial,
    TrialResult,
    execute_trial,
    read_evidence,
    read_result,
)
from bertsmith.recipes.finetune.workers import TrialPool, WorkerSettings
from bertsmith.recipes.resources import WORKING_ROOM, free_memory, gigabytes, layer_activations
from bertsmith.tasks.task import Evidence
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.threads import quick_choice
from bertsmith.weights.folder import CARD_FILE, load_model, save_model

# exponent of the speed by threads: 1.54 times as fast with two (docs/experiments/fine-tuning.md)
_GAIN = 0.62
# share of the free memory used, the rest being reserve
_MEMORY_SHARE = 0.8
# factor for fragmentation: tensors of a batch are in blocks of many sizes
_PIECES = 2.5
# bytes per example: its row, and its arrays of ids
_EXAMPLE = 1500


@dataclass(frozen=True, kw_only=True)
class ParallelPlan:
    """The distribution chosen: trainings at once, threads of each, and why; "" for no choice."""

    at_once: int
    threads: int
    reason: str

    def __str__(self) -> str:
        if not self.reason:
            return ""
        threads = counted(self.threads, "thread")
        if self.at_once == 1:
            return f"one training after the other, with {threads}: {self.reason}"
        return (
            f"{counted(self.at_once, 'training')} side by side, with {threads} each: {self.reason}"
        )


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The resources for training: cores, free bytes if known, and the device."""

    cores: int
    free: int | None
    device: str


def parallel_trials(
    requested: AtOnce,
    counts: Sequence[int],
    need: int,
    machine: Machine,
    threads: int | None = None,
) -> ParallelPlan:
    """Return a plan for several lists of trainings, of `counts`, each training taking `need` bytes.

    A number in `requested` is kept; auto chooses the fastest distribution that fits into memory.
    `threads` are those of a resumed run. Raises `ConfigError` for fewer than one at once.
    """
    cores = machine.cores
    if requested != "auto":
        if requested < 1:
            raise ConfigError(f"--side-by-side is {requested}", remedy="give auto, or at least 1")
        at_once = min(requested, max(counts))
        threads_each = threads or max(1, cores // at_once)
        reason = "as requested" if max(counts) > 1 else ""
        if reason and machine.free is not None and at_once * need > machine.free:
            reason += f", though each may take {gigabytes(need)} of {gigabytes(machine.free)} free"
        return ParallelPlan(at_once=at_once, threads=threads_each, reason=reason)
    if max(counts) == 1:
        return ParallelPlan(at_once=1, threads=threads or cores, reason="")
    reason_for_one = _reason_for_one(need, machine)
    if reason_for_one:
        return ParallelPlan(at_once=1, threads=threads or cores, reason=reason_for_one)
    assert machine.free is not None
    most_at_once = min(
        cores // (threads or 1), max(counts), int(_MEMORY_SHARE * machine.free) // need
    )
    choices = range(1, max(1, most_at_once) + 1)
    at_once = min(choices, key=lambda number: _time(number, counts, threads or cores // number))
    return ParallelPlan(
        at_once=at_once,
        threads=threads or cores // at_once,
        reason=f"{cores} cores, and each may take {gigabytes(need)} of "
        f"{gigabytes(machine.free)} free",
    )


def plan_trials(
    model: Model,
    prepared: Prepared,
    settings: FinetuneSettings,
    *,
    requested: AtOnce,
    counts: Sequence[int],
    device: torch.device,
    fixed_threads: int | None,
) -> ParallelPlan:
    """Return the fastest plan for several lists of trainings of a model on this machine.

    `fixed_threads` are those of a resumed run, None for a new one: another number would change
    rounding in the rest of it. Raises `ConfigError` as `parallel_trials` does.
    """
    machine = Machine(cores=torch.get_num_threads(), free=free_memory(device), device=device.type)
    need = training_need(model, prepared, settings)
    plan = parallel_trials(requested, counts, need, machine, fixed_threads)
    if fixed_threads is not None or device.type != "cpu":
        return plan
    encoder = model.config.encoder
    choice = quick_choice(encoder.hidden, encoder.feed_forward, plan.threads)
    reason = "; ".join(filter(None, (plan.reason, choice.reason)))
    return replace(plan, threads=choice.threads, reason=reason)


def _reason_for_one(need: int, machine: Machine) -> str:
    """Return why only one training at a time is possible, "" if more are."""
    if machine.device != "cpu":
        return "there is one device for all"
    if machine.cores == 1:
        return "there is one core, or OMP_NUM_THREADS allows one"
    if machine.free is None:
        return "how much memory is free is not known here"
    if int(_MEMORY_SHARE * machine.free) < 2 * need:
        return f"each may take {gigabytes(need)}, and {gigabytes(machine.free)} are free"
    return ""


def _time(at_once: int, counts: Sequence[int], threads: int) -> float:
    """Return the estimated time of the lists, in trainings of one thread."""
    rounds = sum(-(-count // at_once) for count in counts)
    return rounds / math.pow(threads, _GAIN)


def training_need(model: Model, prepared: Prepared, settings: FinetuneSettings) -> int:
    """Return the peak memory in bytes of a process that trains such a model, from the sizes.

    `model` is the initial model, without its new head. It is an upper estimate: all batches are
    assumed to be of the longest examples.
    """
    encoder, half = model.config.encoder, settings.precision == "bf16"
    values = sum(parameter.numel() for parameter in model.encoder.parameters())
    # float32 weights, gradients, two moments; weights in bfloat16; weights and moments while saved
    weights = (16 + 2 * half + 12) * values
    lengths = np.sort(prepared.train.lengths)[-settings.batch_size :]
    longest = min(int(lengths[-1]), prepared.limits.longest)
    activations = int(lengths.sum()) * layer_activations(encoder, longest, half=half)
    examples = _EXAMPLE * (len(prepared.train) + len(prepared.dev))
    return int(WORKING_ROOM + weights + _PIECES * activations + examples)


class Trials:
    """The trainings of a run; those that have a result are not repeated.

    With `keep_best`, the best model so far is saved beside its result, and before it, so that
    nothing has to be trained again whenever the run is interrupted.
    """

    def __init__(
        self, run: RunFolder, *, pool: TrialPool | None = None, tensorboard: bool = False
    ) -> None:
        """With `tensorboard`, the log of each is written for TensorBoard too."""
        self._run = run
        self._pool = pool
        self._tensorboard = tensorboard

    @property
    def at_once(self) -> int:
        """Return the number of trainings at once."""
        return 1 if self._pool is None else self._pool.at_once

    def result(self, subfolder: str) -> TrialResult | None:
        """Return the result of a training, None if it has not ended."""
        return read_result(self._folder(subfolder))

    def evidence(self, subfolder: str) -> Evidence:
        """Return the evidence for each row of dev, of a training that has ended."""
        return read_evidence(self._run.path / subfolder)

    def train(self, trials: Sequence[Trial], *, keep_best: bool = False) -> list[TrialResult]:
        """Train and evaluate those that have no result yet, and return the results of all.

        With `keep_best` the model of the best of them is kept.
        """
        results = {
            trial.subfolder: result
            for trial in trials
            if (result := self.result(trial.subfolder)) is not None
        }
        # finished ones too: the run may have been interrupted between result and cleanup
        self._tidy(trials, results, keep_best=keep_best)

        def ended(trial: Trial, result: TrialResult) -> None:
            results[trial.subfolder] = result
            self._tidy(trials, results, keep_best=keep_best)

        def others() -> list[TrialResult] | None:
            return list(results.values()) if keep_best else None

        remaining = [trial for trial in trials if trial.subfolder not in results]
        if self._pool is None:
            for trial in remaining:
                run, tensorboard = self._run.path, self._tensorboard
                ended(trial, execute_trial(trial, run, others(), tensorboard=tensorboard))
        elif remaining:
            self._pool.train(remaining, others, ended)
        return [results[trial.subfolder] for trial in trials]

    def move_model(self, subfolder: str, card: str) -> None:
        """Move a training's model to the run, with a card, or only renew that of one moved before.

        Raises `RunFolderError` where it has been deleted since.
        """
        source = self._folder(subfolder).model
        # deletion takes several steps: a partly deleted folder must not pass for a model
        discarded, card_file = source.with_name("model.moved"), self._run.model / CARD_FILE
        partial_file(card_file).unlink(missing_ok=True)
        if source.exists():
            model, tokenizer = load_model(source)
            save_model(self._run.model, model, tokenizer, card=card)
            shutil.rmtree(discarded, ignore_errors=True)
            source.rename(discarded)
        elif not self._run.model.exists():
            raise RunFolderError(
                f"the model of {subfolder} is no longer here",
                where=self._run.model,
                remedy=f"restore it, or delete {self._run.path} to train again",
            )
        elif not (self._run.path / "results.json").exists():
            # seeds were added, none of which is better
            with replaced_file(card_file) as fresh:
                fresh.write_text(card, encoding="utf-8")
        shutil.rmtree(discarded, ignore_errors=True)

    def _folder(self, subfolder: str) -> RunFolder:
        return RunFolder(self._run.path / subfolder, part_of=self._run)

    def _tidy(
        self, trials: Sequence[Trial], results: Mapping[str, TrialResult], *, keep_best: bool
    ) -> None:
        """Delete the checkpoints of finished trials, and all models but the best."""
        best = max(results, key=lambda folder: results[folder].rank, default="")
        for trial in trials:
            if trial.subfolder in results:
                folder = self._folder(trial.subfolder)
                shutil.rmtree(folder.checkpoints, ignore_errors=True)
                if trial.subfolder != best or not keep_best:
                    shutil.rmtree(folder.model, ignore_errors=True)


@contextmanager
def open_trials(
    run: RunFolder, plan: ParallelPlan, *, tensorboard: bool = False
) -> Iterator[Trials]:
    """Yield the trainings of a run, made by processes of their own where several are planned."""
    settings = WorkerSettings(run.path.resolve(), plan.threads, tensorboard)
    several = nullcontext() if plan.at_once == 1 else closing(TrialPool(settings, plan.at_once))
    with threads_of_torch(plan.threads), several as pool:
        yield Trials(run, pool=pool, tensorboard=tensorboard)
