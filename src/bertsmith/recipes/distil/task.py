"""Distillation on labelled examples, compared with the same student fine-tuned plainly.

    OUT/
      run.json              the resolved run
      METHOD/seed-N/        log and result of each seed, its checkpoints while it trains
      plain/seed-N/         the same for the student that learns from labels alone
      teacher-outputs/      what the teacher gives for the rows, until the run has ended
      baselines.json        scores of the teacher, of the teacher with layers dropped, of TF-IDF
      speeds.json           speed of teacher and student in the engine
      model/                the student that was best on dev
      results.json          the table
      report.html

An interrupted run resumes within the current training, or with the next one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.files import canonical
from bertsmith.core.log import say
from bertsmith.core.printable import shell_word
from bertsmith.engine.devices import device_named, training_precision
from bertsmith.hub.models import model_folder, origin
from bertsmith.network.config import ModelConfig, Preprocessing
from bertsmith.network.model import Model
from bertsmith.recipes.distil.config import DistilConfig, DistilRun
from bertsmith.recipes.distil.methods import check_method, check_teaches
from bertsmith.recipes.distil.speed import choose_student
from bertsmith.recipes.distil.student import (
    NewStudent,
    can_take_layers,
    can_take_token_table,
    check_start,
    check_vocabulary,
    chosen_layers,
)
from bertsmith.recipes.distil.trainings import RESULTS, Distillation, DistilOutcome
from bertsmith.recipes.distil.transfer_set import (
    check_masked_lm,
    check_replaceable,
    read_unlabelled,
)
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import (
    FilesRead,
    Inputs,
    Prepared,
    check_layers,
    hash_of,
    labelled_files,
    limits_of,
    prepare,
    read_inputs,
    reading_hash,
)
from bertsmith.recipes.finetune.recipe import describe
from bertsmith.recipes.finetune.trials import ParallelPlan, open_trials, plan_trials
from bertsmith.recipes.predict.evaluate import check_known
from bertsmith.recipes.predict.reading import reading_as_trained
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.folder import read_config
from bertsmith.weights.tensors import weights_hash
from bertsmith.weights.versions import FolderVersion

# a student has more to learn than a model that is fine-tuned
_EPOCHS = 6


def distil_task(config: DistilConfig) -> DistilOutcome:
    """Teach students a task, print scores and speeds, and keep the best student in `out`/model.

    Raises `ExampleError`, `ConfigError`, `ModelFolderError` or `RunFolderError` before anything is
    written, what `fit` raises, and `WorkerDied`; after an interruption the same call resumes, and
    one with more `seeds` adds them.
    """
    device = device_named(config.device)
    folder = RunFolder(config.out)
    teacher = FolderVersion.of(canonical(config.teacher))
    read = FilesRead.of(config.data, config.dev, config.teaching.unlabelled)
    config, inputs, prepared = _read(config, device, folder)
    config, unlabelled = _read_transfer_set(config, prepared)
    new = _student(config, inputs, prepared, folder, device)
    new = replace(new, versions=(teacher, *new.versions))
    taught = len(prepared.train) * (1 + config.teaching.augment) + len(unlabelled)
    config, notes = _with_settings(config, folder, width=new.config.encoder.hidden, rows=taught)
    check_layers(new.config.encoder, config.settings)
    for method in config.method:
        check_method(method, inputs.base.config.encoder, new.config.encoder, config.teaching)
        check_teaches(method, new.config.encoder, config.settings)
    with folder.owned():
        plan = _plan_parallel(config, inputs.base, prepared, device, folder)
        run = _resolve_run(config, prepared, new, device, plan.threads)
        read.check()
        if known := folder.settings("distil"):
            check_start(folder.path, known, new.config, new.layers, token_table=new.token_table)
        ended = folder.claim("distil", run, extensible="seeds") and (folder.path / RESULTS).exists()
        bad_rows = config.settings.reading.bad_rows.message()
        lines = (bad_rows, *notes, *describe(prepared), "" if ended else str(plan))
        for line in filter(None, lines):
            say(line)
        with open_trials(folder, plan) as trials:
            return Distillation(
                config=config,
                run=run,
                folder=folder,
                prepared=prepared,
                unlabelled=unlabelled,
                teacher=inputs.base.config,
                new=new,
                trials=trials,
            ).execute()


def _with_settings(
    config: DistilConfig, folder: RunFolder, *, width: int, rows: int
) -> tuple[DistilConfig, list[str]]:
    """Choose learning rate and epochs for a student's width and the rows that teach it.

    Those that are given hold, and those that were chosen when the run in the folder began. Returns
    lines on what was chosen, too.
    """
    earlier = (folder.settings("distil") or {}).get("settings", {})
    settings, rate_note = config.settings.with_rate(width, earlier.get("learning_rate"))
    settings, epochs_note = settings.with_epochs(rows, earlier.get("epochs"), _EPOCHS)
    return replace(config, settings=settings), [rate_note, epochs_note]


def _read(
    config: DistilConfig, device: torch.device, folder: RunFolder
) -> tuple[DistilConfig, Inputs, Prepared]:
    """Return the options with all that is chosen, the teacher, and examples as it reads them.

    What auto stands for in the settings is what it was when the run in the folder began.
    """
    network, file = read_config(config.teacher), str(config.data)
    trained = network.preprocessing
    several = network.labels if network.predicts == "classes" else ()
    reading = reading_as_trained(
        config.settings.reading, trained, file, labelled=True, several=several
    )
    earlier_precision = (folder.settings("distil") or {}).get("settings", {}).get("precision")
    precision = training_precision(config.settings.precision, device, earlier_precision)
    settings = replace(config.settings, reading=reading, precision=precision)
    inputs = read_inputs(config.teacher, config.data, config.dev, config.task, settings)
    task, teacher = inputs.task, inputs.base.config
    if teacher.predicts != task.head:
        other = f"has no head for {task.name}, but one for {teacher.predicts}"
        raise ModelFolderError(
            other if teacher.predicts else "has no head for a task",
            where=config.teacher,
            remedy="fine-tune it first: bertsmith finetune MODEL "
            f"{shell_word(config.data)} --out RUN",
        )
    if task.head == "number" and len(teacher.labels) > 1:
        raise ModelFolderError(
            f"has {len(teacher.labels)} numbers for a text; only one is supported",
            where=config.teacher,
            remedy="name a teacher of one number",
        )
    train, dev = (
        task.labels.as_labelled(rows, teacher.labels)
        for rows in (inputs.data.train, inputs.data.dev)
    )
    for rows in (train, dev):
        check_known(task, rows, teacher.labels)
    data = replace(inputs.data, train=train, dev=dev, labels=teacher.labels)
    if trained is not None:
        settings = _as_teacher_reads(settings, trained)
    trainings = config.seeds * (len(config.method) + config.plain)
    length = inputs.length(settings, trainings, device)
    if length.message:
        say(length.message)
    settings = replace(
        settings,
        max_length=_readable_length(config, length.longest),
        truncation=settings.chosen_truncation,
    )
    if trained is not None and settings.stride is None and settings.max_length == trained.longest:
        # a stride belongs to the length that it was chosen for
        settings = replace(settings, stride=trained.stride)
    limits = limits_of(task, settings, teacher.encoder.longest)
    prepared = prepare(data, inputs.tokenizer, limits)
    return replace(config, settings=settings), inputs, prepared


def _as_teacher_reads(settings: FinetuneSettings, trained: Preprocessing) -> FinetuneSettings:
    """Return the settings with the part of long texts that the teacher was trained to read.

    Its answers to another part are not what it knows. Options that are given hold.
    """
    if settings.max_length is None:
        settings = replace(settings, max_length=trained.longest)
    if settings.truncation is None and trained.long != settings.chosen_truncation:
        say(f"long texts are read as in the teacher's training: --truncation {trained.long}")
        settings = replace(settings, truncation=trained.long)
    return settings


def _named_student(config: DistilConfig) -> Path | None:
    """Return the folder of the student, None where a size is given or is to be chosen."""
    options = config.student
    named = options.size is None and options.student != "auto"
    return model_folder(Path(options.student)) if named else None


def _readable_length(config: DistilConfig, longest: int) -> int:
    """Return the number of tokens of a text that a student, whose folder is named, reads too."""
    student = _named_student(config)
    limit = longest if student is None else read_config(student).encoder.longest
    if limit < longest:
        say(f"{student}: reads {limit} tokens at most, and so does its teacher here")
    return min(limit, longest)


def _read_transfer_set(config: DistilConfig, prepared: Prepared) -> tuple[DistilConfig, list[Any]]:
    """Check what is to be taught beside the labelled rows, and return the rows without labels.

    A masked LM of the hub is fetched, and its folder is in the options that are returned.
    """
    teaching = config.teaching
    if teaching.augment_with is not None:
        masked_lm = model_folder(teaching.augment_with)
        check_masked_lm(masked_lm)
        teaching = replace(teaching, augment_with=masked_lm)
    if teaching.augment:
        check_replaceable(prepared.data.train)
    unlabelled: list[Any] = []
    if teaching.unlabelled is not None:
        unlabelled = read_unlabelled(
            teaching.unlabelled, prepared.data, config.settings.reading, config.data
        )
    return replace(config, teaching=teaching), unlabelled


def _student(
    config: DistilConfig,
    inputs: Inputs,
    prepared: Prepared,
    folder: RunFolder,
    device: torch.device,
) -> NewStudent:
    """Return the student; its size, once chosen, is that of the run that is resumed."""
    teacher, options = inputs.base.config, config.student
    earlier = (folder.settings("distil") or {}).get("student")
    named = _named_student(config)
    if named is not None:
        check_vocabulary(named, config.teacher)
        encoder = read_config(named).encoder
    elif options.student == "auto" and earlier is not None:
        encoder = ModelConfig.from_dict(earlier).encoder
    else:
        encoder = choose_student(config, inputs.base, prepared)
    head = replace(
        ModelConfig(encoder=encoder, pooler=False).with_head(prepared.task.head, teacher.labels),
        classifier_dropout=teacher.classifier_dropout,
    )
    layers: tuple[int, ...] = ()
    if named is None and can_take_layers(encoder, teacher.encoder):
        layers = chosen_layers(teacher.encoder.layers, encoder.layers, options.start)
    token_table = (
        named is None and not layers and options.start != "new" and can_take_token_table(encoder)
    )
    versions = () if named is None else (FolderVersion.of(canonical(named)),)
    return NewStudent(
        teacher=config.teacher, config=head, layers=layers, device=device,
        token_table=token_table, folder=named, versions=versions,
    )  # fmt: skip


def _resolve_run(
    config: DistilConfig, prepared: Prepared, new: NewStudent, device: torch.device, threads: int
) -> DistilRun:
    unlabelled, masked_lm = config.teaching.unlabelled, config.teaching.augment_with
    return DistilRun(
        task=prepared.task.name,
        teacher=canonical(config.teacher),
        teacher_hash=weights_hash(config.teacher),
        teacher_reading_hash=reading_hash(config.teacher),
        origin=origin(config.teacher),
        **labelled_files(config.data, config.dev),
        student=new.config,
        student_hash=None if new.folder is None else weights_hash(new.folder),
        unlabelled_hash=None if unlabelled is None else hash_of(unlabelled),
        augment_hash=None if masked_lm is None else weights_hash(masked_lm),
        layers=new.layers,
        token_table=new.token_table,
        method=config.method,
        plain=config.plain,
        seeds=config.seeds,
        threads=threads,
        device=device.type,
        # where outputs are kept changes nothing
        teaching=replace(config.teaching, cache=None, augment_with=None, unlabelled=None),
        settings=config.settings,
    )


def _plan_parallel(
    config: DistilConfig, base: Model, prepared: Prepared, device: torch.device, folder: RunFolder
) -> ParallelPlan:
    """Return the distribution of trainings over processes, of a run that may be resumed."""
    return plan_trials(
        # a student takes less than its teacher
        base,
        prepared,
        config.settings,
        requested=config.side_by_side,
        counts=[config.seeds * len(config.method), config.seeds * config.plain],
        device=device,
        fixed_threads=(folder.settings("distil") or {}).get("threads"),
    )
