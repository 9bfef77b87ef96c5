"""Fine-tuning a model folder for a task, with several seeds.

    RUN/
      run.json       the resolved run
      seeds/seed-N/  log and result of each seed, its checkpoints while it trains
      grid/, curve/, random/   the same of other trainings (trials.py)
      rivals.json    what the contestants that are no network came to
      model/         the model of the seed that was best on dev
      results.json   all scores
      report.html

A run that was stopped goes on where it was: with the training in hand, or with the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertsmith.core.config import Config
from bertsmith.core.errors import ExampleError
from bertsmith.core.hashing import file_hash, text_hash
from bertsmith.core.log import say
from bertsmith.hub.models import model_folder, origin
from bertsmith.network.heads import Predicts
from bertsmith.network.model import Model
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.finetune.experiment import Asked, Contest
from bertsmith.recipes.finetune.inputs import Inputs, ReadingLength, read_inputs
from bertsmith.recipes.finetune.labelled import LabelledData
from bertsmith.recipes.finetune.outcome import FinetuneOutcome
from bertsmith.recipes.finetune.parallel import (
    Abreast,
    AtOnce,
    Machine,
    abreast,
    threads_of_torch,
    trainers,
    training_need,
)
from bertsmith.recipes.finetune.report import write_report
from bertsmith.recipes.finetune.scores import describe, tell, write_card
from bertsmith.recipes.finetune.settings import FinetuneConfig
from bertsmith.recipes.finetune.trial import Prepared
from bertsmith.recipes.finetune.trials import Trials
from bertsmith.recipes.finetune.worker import Workplace
from bertsmith.recipes.room import free_memory
from bertsmith.tasks.task import Task
from bertsmith.training.interruption import Interrupted
from bertsmith.training.run.folder import RunFolder, write_record
from bertsmith.training.tensorboard import require_tensorboard
from bertsmith.weights.folder import start_from
from bertsmith.weights.tensors import weights_hash

__all__ = ["FinetuneConfig", "FinetuneOutcome", "FinetuneRun", "finetune"]


@dataclass(frozen=True, kw_only=True)
class FinetuneRun(Config):
    """A resolved run: what it starts from, what it reads, and how it trains."""

    task: str
    """What is learned."""
    model: Path
    """Folder of the model that training starts from."""
    model_hash: str
    """SHA-256 of its weights."""
    train: Path
    """The training examples."""
    train_hash: str
    """SHA-256 of their file."""
    dev: Path | None
    """The examples to measure with, None for a share of the training file."""
    dev_hash: str | None
    """SHA-256 of their file."""
    labels: tuple[str, ...]
    """The names of the model's outputs, in its order."""
    seeds: int
    """Number of seeds."""
    grid: bool
    """Whether rate, batch and epochs were chosen before them."""
    minutes: float | None
    """Minutes for that."""
    curve: bool
    """Whether fewer examples are tried as well."""
    baselines: bool
    """Whether all contestants are tried."""
    threads: int
    """Threads of torch; part of what makes a run repeat bit for bit."""
    device: str
    """Type of the device."""
    settings: FinetuneConfig
    """How each is trained."""
    origin: str | None = None
    """The model's name and commit on the hub, if it came from there."""


def finetune(
    model: str | Path,
    train: Path,
    *,
    out: Path,
    dev: Path | None = None,
    task: str | None = None,
    seeds: int = 5,
    settings: FinetuneConfig = FinetuneConfig(),  # noqa: B008 (frozen)
    grid: bool = False,
    minutes: float | None = None,
    curve: bool = False,
    baselines: bool = False,
    device: str = "auto",
    tensorboard: bool = False,
    side_by_side: AtOnce = "auto",
) -> FinetuneOutcome:
    """Train `seeds` models for a task, tell how they do on dev, and keep the best in `out`/model.

    The task is told from the data where none is named. With a `grid` rate, batch and epochs are
    chosen on dev first, in so many `minutes` where that is given. So many trainings go on
    `side_by_side`, each in a process of its own. Raises `ExampleError`, `ConfigError`,
    `ModelFolderError` or `RunFolderError` before anything is written, what `fit` raises, and
    `WorkerDied`; after an interruption the same call goes on, and one with more `seeds` adds them.
    """
    place, model = device_named(device), model_folder(model)
    if tensorboard:
        require_tensorboard()
    asked = Asked(seeds=seeds, grid=grid, minutes=minutes, curve=curve, baselines=baselines)
    inputs = read_inputs(model, train, dev, task, settings)
    base, data = inputs.base, inputs.data
    folder = RunFolder(out)
    length = _length(folder, inputs, settings, asked, place)
    settings = replace(settings, longest=length.longest)
    run = _resolved(model, train, dev, data, asked, settings, place)
    prepared = inputs.prepared(settings)
    with folder.owned():
        how = _abreast(side_by_side, asked, base, prepared, settings, place, folder)
        run = replace(run, threads=how.threads)
        told = (length.told, "" if _has_ended(folder, run) else str(how))
        workplace = Workplace(folder.path.resolve(), how.threads, tensorboard)
        with threads_of_torch(how.threads), trainers(workplace, how.at_once) as processes:
            contest = Contest(
                folder=folder,
                settings=settings,
                prepared=prepared,
                trials=Trials(folder, trainers=processes, tensorboard=tensorboard),
                make_model=model_maker(run.model, inputs.task, data.labels, place),
            )
            return _carry_out(contest, asked, run, told)


def _length(
    folder: RunFolder,
    inputs: Inputs,
    settings: FinetuneConfig,
    asked: Asked,
    place: torch.device,
) -> ReadingLength:
    """Return the tokens read of a text: as asked for, or as when the run was begun."""
    known = (folder.settings("finetune") or {}).get("settings", {}).get("longest")
    if settings.longest is None and known is not None:
        return ReadingLength(longest=known)
    return inputs.length(settings, asked, place)


def _abreast(
    side_by_side: AtOnce,
    asked: Asked,
    base: Model,
    prepared: Prepared,
    settings: FinetuneConfig,
    place: torch.device,
    folder: RunFolder,
) -> Abreast:
    """How the trainings are made, of a run that may go on."""
    # another number of threads would round differently in what is left to do
    kept = (folder.settings("finetune") or {}).get("threads")
    counts = asked.counts(settings, len(prepared.data.train))
    machine = Machine(cores=torch.get_num_threads(), free=free_memory(place), device=place.type)
    return abreast(side_by_side, counts, training_need(base, prepared, settings), machine, kept)


def _has_ended(folder: RunFolder, run: FinetuneRun) -> bool:
    """Take the folder for a run, which may have ended in it before, with fewer seeds too."""
    before = (folder.settings("finetune") or {}).get("seeds", run.seeds)
    # a grid has used the seed that follows those told
    if not folder.claim("finetune", run, growing="" if run.grid else "seeds"):
        return False
    results, where = folder.path / "results.json", f"the run in {folder.path}"
    if before < run.seeds:
        results.unlink(missing_ok=True)
        say(f"going on with {where}, which had {before} seeds")
        return False
    ended = results.exists()
    say(f"{where} has ended" if ended else f"going on with {where}")
    return ended


def _resolved(
    model: Path,
    train: Path,
    dev: Path | None,
    data: LabelledData[Any],
    asked: Asked,
    settings: FinetuneConfig,
    device: torch.device,
) -> FinetuneRun:
    return FinetuneRun(
        task=data.task.name,
        model=model.resolve(),
        origin=origin(model),
        model_hash=weights_hash(model),
        train=train.resolve(),
        train_hash=hash_of(train),
        dev=None if dev is None else dev.resolve(),
        dev_hash=None if dev is None else hash_of(dev),
        labels=data.labels,
        seeds=asked.seeds,
        grid=asked.grid,
        minutes=asked.minutes,
        curve=asked.curve,
        baselines=asked.baselines,
        threads=torch.get_num_threads(),
        device=device.type,
        settings=settings,
    )


def hash_of(path: Path) -> str:
    """SHA-256 of a file, or of the names and hashes of a folder's files."""
    if not path.is_dir():
        try:
            return file_hash(path)
        except OSError as error:
            raise ExampleError(f"cannot be read: {error.strerror}", where=path) from error
    files = sorted(each for each in path.rglob("*") if each.is_file())
    listed = "".join(f"{file_hash(each)}  {each.relative_to(path)}\n" for each in files)
    return text_hash(listed)


def model_maker(
    folder: Path, task: Task[Any], labels: tuple[str, ...], device: torch.device
) -> Callable[[int], Model]:
    """Makes of a seed, here or in another process, a model that starts from a folder."""
    return _FromFolder(folder, task.predicts, labels, device)


@dataclass(frozen=True)
class _FromFolder:
    folder: Path
    predicts: Predicts
    labels: tuple[str, ...]
    device: torch.device

    def __call__(self, seed: int) -> Model:
        model, _ = start_from(self.folder, predicts=self.predicts, labels=self.labels, seed=seed)
        return model.to(self.device)


def _carry_out(
    contest: Contest, asked: Asked, run: FinetuneRun, told: tuple[str, str]
) -> FinetuneOutcome:
    bad = contest.settings.reading.bad_rows.told()
    length, how = told
    for line in filter(None, (bad, length, *describe(contest.prepared), how)):
        say(line)
    try:
        outcome = contest.hold(asked)
    except Interrupted as stopped:
        raise Interrupted(f"{stopped}, saved; go on with the same command") from None
    card = write_card(outcome, run.to_dict())
    contest.trials.move_model(f"seeds/seed-{outcome.best.seed}", card)
    write_record(outcome.folder / "results.json", outcome.to_dict())
    write_report(outcome, contest.folder.report, run.to_dict())
    tell(outcome)
    say(f"next: bertsmith predict {outcome.model} FILE")
    return outcome
