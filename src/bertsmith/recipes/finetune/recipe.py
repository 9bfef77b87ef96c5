"""Fine-tuning of a model folder for a task, with several seeds.

    RUN/
      run.json       the resolved run
      seeds/seed-N/  log and result of each seed, its checkpoints while it trains
      grid/, curve/, random/   the same for other trainings (trials.py)
      baselines.json results of the baselines that are not neural networks
      model/         the model of the seed that was best on dev
      results.json   all scores
      report.html

An interrupted run resumes within the current training, or with the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from bertsmith.core.config import path_of
from bertsmith.core.files import canonical
from bertsmith.core.log import say
from bertsmith.core.printable import counted, shell_word
from bertsmith.core.signals import Interrupted
from bertsmith.engine.devices import device_named, training_precision
from bertsmith.hub.models import model_folder, origin
from bertsmith.network.config import ModelConfig, Predicts
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.config import (
    ExperimentConfig,
    FinetuneConfig,
    FinetuneSettings,
    LabelledFiles,
    SearchConfig,
)
from bertsmith.recipes.finetune.experiment import Experiment, training_counts
from bertsmith.recipes.finetune.inputs import (
    FilesRead,
    Inputs,
    LabelledData,
    Prepared,
    ReadingLength,
    contradictions,
    labelled_files,
    overlap,
    read_inputs,
    reading_hash,
    shared_groups,
)
from bertsmith.recipes.finetune.outcome import FinetuneOutcome, print_outcome
from bertsmith.recipes.finetune.report import write_card, write_report
from bertsmith.recipes.finetune.trials import ParallelPlan, open_trials, plan_trials
from bertsmith.tasks.labels import absent_labels, absent_note, alike_labels, placeholder_labels
from bertsmith.tasks.task import counted_rows
from bertsmith.text.examples.example import folded
from bertsmith.training.run_folder import RunFolder, require_tensorboard, write_record
from bertsmith.weights.folder import start_from
from bertsmith.weights.tensors import weights_hash
from bertsmith.weights.versions import FolderVersion


@dataclass(frozen=True, kw_only=True)
class FinetuneRun(LabelledFiles):
    """A resolved run: initial model, data, and training settings."""

    task: str
    """Name of the task."""
    model: Path = field(metadata=path_of("model_hash", "model_reading_hash"))
    """Folder of the initial model."""
    model_hash: str
    """SHA-256 of its weights."""
    model_reading_hash: str
    """SHA-256 of its config and vocabulary."""
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
    device = device_named(config.experiment.device)
    config = replace(config, model=model_folder(config.model))
    if config.tensorboard:
        require_tensorboard(config.out)
    folder = RunFolder(config.out)
    base, read = FolderVersion.of(canonical(config.model)), FilesRead.of(config.train, config.dev)
    config, inputs, prepared, notes = _read_inputs(config, folder, device)
    with folder.owned():
        plan = _plan_parallel(config, inputs.base, prepared, device, folder)
        run = _resolve_run(config, inputs.data, device, plan.threads)
        read.check()
        plan_note = "" if _has_ended(folder, run) else str(plan)
        with open_trials(folder, plan, tensorboard=config.tensorboard) as trials:
            experiment = Experiment(
                folder=folder,
                settings=config.settings,
                prepared=prepared,
                trials=trials,
                make_model=ModelFactory(base, inputs.task.head, inputs.data.labels, device),
                limit=inputs.base.config.encoder.longest,
            )
            bad_rows = config.settings.reading.bad_rows.message()
            lines = (bad_rows, *notes, *describe(prepared), plan_note)
            return _run_experiment(experiment, config.experiment, run, filter(None, lines))


def _read_inputs(
    config: FinetuneConfig, folder: RunFolder, device: torch.device
) -> tuple[FinetuneConfig, Inputs, Prepared, list[str]]:
    """Return the options with all that is chosen, the inputs, and lines on what was chosen."""
    inputs = read_inputs(config.model, config.train, config.dev, config.task, config.settings)
    config, notes = _resolve_settings(config, inputs, folder, device)
    prepared = inputs.prepared(config.settings)
    base = inputs.base.config
    return config, inputs, prepared, [_head_note(base), *notes, _pretraining_note(base, prepared)]


def _head_note(config: ModelConfig) -> str:
    """Return a note on the head of a model that was fine-tuned before; "" without one."""
    if config.predicts is None:
        return ""
    labels = f" ({counted(len(config.labels), 'label')})" if config.labels else ""
    head = f"the model's head, which predicts {config.predicts}{labels}"
    return f"{head}, is replaced by a new one with random weights"


def _pretraining_note(config: ModelConfig, prepared: Prepared) -> str:
    """Return a note on sequences that are longer than those of pre-training; "" without any."""
    trained, sequences = config.pretrained_length, prepared.train.ids
    longer = 0 if trained is None else sum(len(ids) > trained for ids in sequences)
    if not longer:
        return ""
    learned = config.encoder.positions == "learned"
    so_far = "it learns later positions from them alone" if learned else "it has read none so long"
    share = f"{longer:,} of {len(sequences):,} here ({100 * longer / len(sequences):.1f} %)"
    return (
        f"the model was pre-trained on sequences of at most {trained} tokens, and {share} "
        f"{'is' if longer == 1 else 'are'} longer: {so_far}; --max-length {trained} reads no more"
    )


def _resolve_settings(
    config: FinetuneConfig, inputs: Inputs, folder: RunFolder, device: torch.device
) -> tuple[FinetuneConfig, list[str]]:
    """Choose precision, learning rate, epochs and length, and return lines on what was chosen.

    Those that are given hold, and those that were chosen when the run in the folder began.
    """
    earlier = (folder.settings("finetune") or {}).get("settings", {})
    precision = training_precision(config.settings.precision, device, earlier.get("precision"))
    width, rows = inputs.base.config.encoder.hidden, len(inputs.data.train)
    truncation = config.settings.chosen_truncation
    settings = replace(config.settings, precision=precision, truncation=truncation)
    settings, rate_note = settings.with_rate(width, earlier.get("learning_rate"))
    settings, epochs_note = settings.with_epochs(rows, earlier.get("epochs"))
    experiment, notes = config.experiment, [rate_note, epochs_note]
    if experiment.grid:
        experiment, notes = replace(experiment, search=experiment.search.resolved(width, rows)), []
    if settings.max_length is None and "max_length" in earlier:
        length = ReadingLength(longest=earlier["max_length"])
    else:
        counts = training_counts(experiment, settings, rows)
        length = inputs.length(settings, sum(counts), device)
    settings = replace(settings, max_length=length.longest)
    config = replace(config, settings=settings, experiment=experiment)
    return config, [length.message, *notes]


def _plan_parallel(
    config: FinetuneConfig, base: Model, prepared: Prepared, device: torch.device, folder: RunFolder
) -> ParallelPlan:
    """Return the distribution of trainings over processes, of a run that may be resumed."""
    options, settings = config.experiment, config.settings
    return plan_trials(
        base,
        prepared,
        settings,
        requested=options.side_by_side,
        counts=training_counts(options, settings, len(prepared.data.train)),
        device=device,
        fixed_threads=(folder.settings("finetune") or {}).get("threads"),
    )


def _extensible_setting(run: FinetuneRun) -> str:
    """Return the setting of a run that may be larger than it was."""
    # a grid uses the seed after those of the run
    return "" if run.grid else "seeds"


def _has_ended(folder: RunFolder, run: FinetuneRun) -> bool:
    """Claim the folder for a run and return whether it has ended there, with the same seeds."""
    earlier_seeds = (folder.settings("finetune") or {}).get("seeds", run.seeds)
    if not folder.claim("finetune", run, extensible=_extensible_setting(run)):
        return False
    results, run_description = folder.path / "results.json", f"the run in {folder.path}"
    if earlier_seeds < run.seeds:
        results.unlink(missing_ok=True)
        say(f"adding seeds to {run_description}, which had {counted(earlier_seeds, 'seed')}")
        return False
    ended = results.exists()
    say(f"{run_description} has ended" if ended else f"resuming {run_description}")
    return ended


def _resolve_run(
    config: FinetuneConfig, data: LabelledData[Any], device: torch.device, threads: int
) -> FinetuneRun:
    options = config.experiment
    return FinetuneRun(
        task=data.task.name,
        model=canonical(config.model),
        origin=origin(config.model),
        model_hash=weights_hash(config.model),
        model_reading_hash=reading_hash(config.model),
        **labelled_files(config.train, config.dev),
        labels=data.labels,
        seeds=options.seeds,
        grid=options.grid,
        search=options.search,
        minutes=options.minutes,
        curve=options.curve,
        baselines=options.baselines,
        threads=threads,
        device=device.type,
        settings=config.settings,
    )


@dataclass(frozen=True)
class ModelFactory:
    """A picklable function from a seed to a model initialised from a folder.

    It raises `ModelFolderError` once the folder has another version.
    """

    base: FolderVersion
    predicts: Predicts
    labels: tuple[str, ...]
    device: torch.device

    def __call__(self, seed: int) -> Model:
        """Return the model of a seed."""
        folder = self.base.folder
        model, _ = start_from(folder, predicts=self.predicts, labels=self.labels, seed=seed)
        # else seeds would begin from different models
        self.base.check()
        return model.to(self.device)


def _run_experiment(
    experiment: Experiment, options: ExperimentConfig, run: FinetuneRun, notes: Iterable[str]
) -> FinetuneOutcome:
    for line in notes:
        say(line)
    try:
        outcome = experiment.run(options)
    except Interrupted as stopped:
        raise Interrupted(f"{stopped}, saved; the same command resumes it") from None
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
    device = device_named(config.experiment.device)
    config, folder = replace(config, model=model_folder(config.model)), RunFolder(config.out)
    if config.tensorboard:
        require_tensorboard(config.out)
    folder.check_place()
    config, inputs, prepared, notes = _read_inputs(config, folder, device)
    plan = _plan_parallel(config, inputs.base, prepared, device, folder)
    run = _resolve_run(config, inputs.data, device, plan.threads)
    folder.check_claim("finetune", run, extensible=_extensible_setting(run))
    config.settings.fit(1, 0)
    bad_rows = config.settings.reading.bad_rows.message()
    for line in filter(None, (bad_rows, *notes, *describe(prepared))):
        say(line)
    say("dry run: nothing was trained, nothing was written")


def _difference(labels: tuple[str, ...]) -> str:
    """Return in what labels that are alike differ."""
    spelled = {label.casefold() for label in labels}
    characters = len(set(map(folded, labels))) < len(spelled)
    return f"differ only in case{' or in how characters are written' * characters}"


def describe(prepared: Prepared) -> list[str]:
    """Return lines that describe the data, with warnings."""
    data, note = prepared.data, truncation_note(prepared)
    return [*_sizes(data), *_label_warnings(data), *_copy_warnings(data), *filter(None, [note])]


def _sizes(data: LabelledData[Any]) -> list[str]:
    task, lines = data.task, []
    for name, rows in (("train", data.train), ("dev", data.dev)):
        content = task.present.describe(rows, data.labels)
        lines.append(f"{name}: {counted_rows(task, rows)}" + (f" ({content})" if content else ""))
    if data.dev_is_cut:
        lines[-1] += ", held out of the training file"
    return lines


def _label_warnings(data: LabelledData[Any]) -> list[str]:
    """Return warnings of labels that are alike, stand for none, or are absent."""
    task, lines = data.task, []
    if alike := alike_labels(data.labels):
        lines.append(f"the labels {alike} {_difference(data.labels)}; they are separate labels")
    if task.labels.picked and (placeholders := placeholder_labels(data.labels)):
        option = quote(f"--exclude={placeholders[0]}")
        what = f"the label {placeholders[0]!r} may stand for none"
        remedy = f"{option} leaves its examples out"
        if task.head == "classes":
            remedy = f"remove its rows; with {option} they would be examples without any label"
        lines.append(f"{what}: {remedy}")
    if absent := absent_labels(task, data.train, data.labels):
        lines.append(f"train has no example of {absent}, which the model cannot learn")
    if note := absent_note(task, "dev", data.dev, data.labels):
        lines.append(note)
    return lines


def _copy_warnings(data: LabelledData[Any]) -> list[str]:
    """Return warnings of texts with several labels, and of texts and groups in both parts."""
    lines = []
    if several := contradictions(data):
        have = f"{counted(several, 'text')} of train {'has' if several == 1 else 'have'}"
        lines.append(f"{have} copies with another label")
    if shared := overlap(data):
        have = f"{shared:,} of the dev {data.task.unit} {'has' if shared == 1 else 'have'}"
        lines.append(f"{have} a text that is also in train (ignoring case)")
    if shared := shared_groups(data):
        have = f"{shared:,} of the dev {data.task.unit} {'is' if shared == 1 else 'are'}"
        lines.append(f"{have} of a group that is also in train")
    return lines


def truncation_note(prepared: Prepared) -> str:
    """Return a note on texts that exceeded the limit, and on their reading; "" if none did."""
    parts, limits, task = (prepared.train, prepared.dev), prepared.limits, prepared.task
    total = sum(part.texts for part in parts)
    long, cut = sum(part.long_texts for part in parts), sum(part.cut_texts for part in parts)
    lines = []
    if long:
        became = limits.treatment(windowed=task.answers.windowed or not cut)
        share = f"{long:,} of {counted(total, 'text')} ({100 * long / total:.1f} %)"
        lines.append(
            f"{share} {'was' if long == 1 else 'were'} longer than {limits.longest} tokens: "
            f"{became}"
        )
    if cut and task.answers.windowed:
        questions = counted(cut, task.unit.removesuffix("s"), task.unit)
        pronoun = "itself" if cut == 1 else "themselves"
        lines.append(f"of {questions} {pronoun} only the beginning was read")
    return "; ".join(lines)
