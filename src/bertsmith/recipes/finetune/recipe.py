"""Fine-tuning of a model folder for a task, with several seeds.

    RUN/
      run.json       the resolved run
      seeds/seed-N/  log and result of each seed, its checkpoints while it trains
      grid/, curve/, random/   the same for other trainings (trials.py)
      rivals.json    results of the baselines that are not neural networks
      model/         the model of the seed that was best on dev
      results.json   all scores
      report.html

An interrupted run resumes within the current training, or with the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from bertsmith.core.config import Config
from bertsmith.core.errors import ExampleError
from bertsmith.core.files import file_hash, reading_remedy, text_hash
from bertsmith.core.log import say
from bertsmith.core.printable import counted, shell_word
from bertsmith.core.signals import Interrupted
from bertsmith.engine.devices import device_named, threads_of_torch, training_precision
from bertsmith.hub.models import model_folder, origin
from bertsmith.network.config import Predicts
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.config import (
    ExperimentConfig,
    FinetuneConfig,
    FinetuneSettings,
    SearchConfig,
)
from bertsmith.recipes.finetune.experiment import Experiment, training_counts
from bertsmith.recipes.finetune.inputs import (
    Inputs,
    LabelledData,
    Prepared,
    ReadingLength,
    contradictions,
    overlap,
    read_inputs,
)
from bertsmith.recipes.finetune.outcome import FinetuneOutcome, print_outcome
from bertsmith.recipes.finetune.report import write_card, write_report
from bertsmith.recipes.finetune.trials import ParallelTrials, Trials, plan_trials
from bertsmith.recipes.finetune.workers import Workplace, trainers
from bertsmith.tasks.labels import absent_labels, alike_labels, placeholder_labels
from bertsmith.tasks.task import Task, counted_rows
from bertsmith.training.run_folder import RunFolder, require_tensorboard, write_record
from bertsmith.weights.folder import start_from
from bertsmith.weights.tensors import weights_hash


@dataclass(frozen=True, kw_only=True)
class FinetuneRun(Config):
    """A resolved run: initial model, data, and training settings."""

    task: str
    """Name of the task."""
    model: Path
    """Folder of the initial model."""
    model_hash: str
    """SHA-256 of its weights."""
    train: Path
    """File of the training examples."""
    train_hash: str
    """SHA-256 of their file."""
    dev: Path | None
    """File of the dev examples, None for a share of the training file."""
    dev_hash: str | None
    """SHA-256 of their file."""
    labels: tuple[str, ...]
    """Names of the model's outputs, in order."""
    seeds: int
    """Number of seeds."""
    grid: bool
    """True if rate, batch and epochs were chosen by grid search first."""
    search: SearchConfig
    """The search space of the grid."""
    minutes: float | None
    """Minutes for the grid search."""
    curve: bool
    """True if smaller training sets are tried as well."""
    baselines: bool
    """True if all baselines are tried."""
    threads: int
    """Threads of torch; part of what makes a run reproducible bit for bit."""
    device: str
    """Type of the device."""
    settings: FinetuneSettings
    """Settings of each training."""
    origin: str | None = None
    """Name and commit of the model on the hub, if it came from there."""


def finetune(config: FinetuneConfig) -> FinetuneOutcome:
    """Train models for a task with several seeds, print dev scores, keep the best in `out`/model.

    The task is detected from the data if none is given. With `grid`, learning rate, batch size and
    epochs are chosen on dev first, within `minutes` if given. Raises `ExampleError`, `ConfigError`,
    `ModelFolderError` or `RunFolderError` before anything is written, what `fit` raises, and
    `WorkerDied`; after an interruption the same call resumes, and one with more `seeds` adds them.
    """
    asked, place = config.experiment, device_named(config.experiment.device)
    config = replace(config, model=model_folder(config.model))
    if config.tensorboard:
        require_tensorboard()
    folder = RunFolder(config.out)
    config, inputs, prepared, note = _read(config, folder, place)
    with folder.owned():
        how = _parallel_trials(config, inputs.base, prepared, place, folder)
        run = _resolved(config, inputs.data, place, how.threads)
        notes = (note, "" if _has_ended(folder, run) else str(how))
        workplace = Workplace(folder.path.resolve(), how.threads, config.tensorboard)
        with threads_of_torch(how.threads), trainers(workplace, how.at_once) as processes:
            experiment = Experiment(
                folder=folder,
                settings=config.settings,
                prepared=prepared,
                trials=Trials(folder, trainers=processes, tensorboard=config.tensorboard),
                make_model=model_maker(run.model, inputs.task, inputs.data.labels, place),
            )
            return _carry_out(experiment, asked, run, notes)


def _read(
    config: FinetuneConfig, folder: RunFolder, place: torch.device
) -> tuple[FinetuneConfig, Inputs, Prepared, str]:
    """Return the options with all that is chosen, the inputs, and a line on the length of texts."""
    inputs = read_inputs(config.model, config.train, config.dev, config.task, config.settings)
    config, note = _settled(config, inputs, folder, place)
    return config, inputs, inputs.prepared(config.settings), note


def _settled(
    config: FinetuneConfig, inputs: Inputs, folder: RunFolder, place: torch.device
) -> tuple[FinetuneConfig, str]:
    """Choose precision and maximum length where none are given, and return a line on the length.

    Those that were chosen when the run in the folder began hold.
    """
    known = (folder.settings("finetune") or {}).get("settings", {})
    precision = training_precision(config.settings.precision, place, known.get("precision"))
    settings = replace(config.settings, precision=precision)
    if settings.max_length is None and "max_length" in known:
        length = ReadingLength(longest=known["max_length"])
    else:
        counts = training_counts(config.experiment, settings, len(inputs.data.train))
        length = inputs.length(settings, sum(counts), place)
    return replace(config, settings=replace(settings, max_length=length.longest)), length.told


def _parallel_trials(
    config: FinetuneConfig,
    base: Model,
    prepared: Prepared,
    place: torch.device,
    folder: RunFolder,
) -> ParallelTrials:
    """Return how the trainings are distributed over processes, of a run that may be resumed."""
    asked, settings = config.experiment, config.settings
    return plan_trials(
        base,
        prepared,
        settings,
        asked=asked.side_by_side,
        counts=training_counts(asked, settings, len(prepared.data.train)),
        device=place,
        kept=(folder.settings("finetune") or {}).get("threads"),
    )


def _growing(run: FinetuneRun) -> str:
    """Return the setting of a run that may be larger than it was."""
    # a grid uses the seed after those of the run
    return "" if run.grid else "seeds"


def _has_ended(folder: RunFolder, run: FinetuneRun) -> bool:
    """Claim the folder for a run and return whether it has ended there, with the same seeds."""
    before = (folder.settings("finetune") or {}).get("seeds", run.seeds)
    if not folder.claim("finetune", run, growing=_growing(run)):
        return False
    results, where = folder.path / "results.json", f"the run in {folder.path}"
    if before < run.seeds:
        results.unlink(missing_ok=True)
        say(f"going on with {where}, which had {counted(before, 'seed')}")
        return False
    ended = results.exists()
    say(f"{where} has ended" if ended else f"going on with {where}")
    return ended


def _resolved(
    config: FinetuneConfig, data: LabelledData[Any], device: torch.device, threads: int
) -> FinetuneRun:
    asked, dev = config.experiment, config.dev
    return FinetuneRun(
        task=data.task.name,
        model=config.model.resolve(),
        origin=origin(config.model),
        model_hash=weights_hash(config.model),
        train=config.train.resolve(),
        train_hash=hash_of(config.train),
        dev=None if dev is None else dev.resolve(),
        dev_hash=None if dev is None else hash_of(dev),
        labels=data.labels,
        seeds=asked.seeds,
        grid=asked.grid,
        search=asked.search,
        minutes=asked.minutes,
        curve=asked.curve,
        baselines=asked.baselines,
        threads=threads,
        device=device.type,
        settings=config.settings,
    )


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and hashes of a folder's files."""
    if not path.is_dir():
        try:
            return file_hash(path)
        except OSError as error:
            what = f"cannot be read: {error.strerror}"
            raise ExampleError(what, where=path, remedy=reading_remedy(error)) from error
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listed = "".join(f"{file_hash(file)}  {file.relative_to(path)}\n" for file in files)
    return text_hash(listed)


def model_maker(
    folder: Path, task: Task[Any], labels: tuple[str, ...], device: torch.device
) -> Callable[[int], Model]:
    """Return a picklable function from a seed to a model initialised from a folder."""
    return _FromFolder(folder, task.head, labels, device)


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
    experiment: Experiment, asked: ExperimentConfig, run: FinetuneRun, notes: tuple[str, str]
) -> FinetuneOutcome:
    bad = experiment.settings.reading.bad_rows.told()
    length, how = notes
    for line in filter(None, (bad, length, *describe(experiment.prepared), how)):
        say(line)
    try:
        outcome = experiment.run(asked)
    except Interrupted as stopped:
        raise Interrupted(f"{stopped}, saved; go on with the same command") from None
    card = write_card(outcome, run.to_dict())
    experiment.trials.move_model(f"seeds/seed-{outcome.best.seed}", card)
    write_record(outcome.folder / "results.json", outcome.to_dict())
    write_report(outcome, experiment.folder.report, run.to_dict())
    print_outcome(outcome)
    say(f"next: bertsmith predict {shell_word(outcome.model)} FILE")
    return outcome


def dry_run(config: FinetuneConfig) -> None:
    """Read, check and describe what `finetune` would train on, and stop before any training.

    Raises what `finetune` raises before it trains, and writes nothing.
    """
    place = device_named(config.experiment.device)
    config, folder = replace(config, model=model_folder(config.model)), RunFolder(config.out)
    if config.tensorboard:
        require_tensorboard()
    folder.check_place()
    config, inputs, prepared, note = _read(config, folder, place)
    how = _parallel_trials(config, inputs.base, prepared, place, folder)
    run = _resolved(config, inputs.data, place, how.threads)
    folder.check_claim("finetune", run, growing=_growing(run))
    config.settings.fit(1, 0)
    bad = config.settings.reading.bad_rows.told()
    for line in filter(None, (bad, note, *describe(prepared))):
        say(line)
    say("dry run: nothing was trained, nothing was written")


_LONG = {
    "head": "only their beginning was read",
    "tail": "only their end was read",
    "head+tail": "only a quarter of their tokens' room from the beginning and the rest from the "
    "end were read",
    "windows": "they were read in windows",
}


def describe(prepared: Prepared) -> list[str]:
    """Return lines that describe the data, with warnings."""
    data, task = prepared.data, prepared.task
    lines = []
    for name, rows in (("train", data.train), ("dev", data.dev)):
        held = task.present.describe(rows, data.labels)
        lines.append(f"{name}: {counted_rows(task, rows)}" + (f" ({held})" if held else ""))
    if data.dev_is_cut:
        lines[-1] += ", held out of the training file"
    if alike := alike_labels(data.labels):
        lines.append(f"the labels {alike} differ in case alone, and are labels of their own")
    if task.labels.picked and (placeholders := placeholder_labels(data.labels)):
        option = quote(f"--exclude={placeholders[0]}")
        what = f"the label {placeholders[0]!r} may stand for none"
        lines.append(f"{what}: {option} leaves its examples out")
    if absent := absent_labels(task, data.train, data.labels):
        lines.append(f"train has no example of {absent}, which the model cannot learn")
    if absent := absent_labels(task, data.dev, data.labels):
        lines.append(f"dev has no example of {absent}, of which the scores say nothing")
    if several := contradictions(data):
        have = f"{counted(several, 'text')} of train {'has' if several == 1 else 'have'}"
        lines.append(f"{have} copies of another label")
    if shared := overlap(data):
        of_dev = f"{shared:,} of the dev {task.unit}"
        lines.append(f"{of_dev} have a text that is also in train, capitals aside")
    if line := truncation_note(prepared):
        lines.append(line)
    return lines


def truncation_note(prepared: Prepared) -> str:
    """Return how many texts exceeded the limit, and how they were read; "" if none did."""
    parts, room, task = (prepared.train, prepared.dev), prepared.room, prepared.task
    total = sum(part.texts for part in parts)
    long, cut = sum(part.long_texts for part in parts), sum(part.cut_texts for part in parts)
    lines = []
    if long:
        became = _LONG[room.long if cut and not task.answers.windowed else "windows"]
        share = f"{long:,} of {counted(total, 'text')} ({100 * long / total:.1f} %)"
        lines.append(
            f"{share} {'was' if long == 1 else 'were'} longer than {room.longest} tokens: {became}"
        )
        lines += ["--truncation says what is read"] * bool(cut and not task.answers.windowed)
    if cut and task.answers.windowed:
        questions = counted(cut, task.unit.removesuffix("s"), task.unit)
        own = "itself" if cut == 1 else "themselves"
        lines.append(f"of {questions} {own} only the beginning was read")
    return "; ".join(lines)
