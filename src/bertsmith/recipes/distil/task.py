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

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.log import say
from bertsmith.core.printable import shell_word
from bertsmith.core.signals import Interrupted
from bertsmith.engine.devices import device_named, training_precision
from bertsmith.evaluation.metrics import percent, score_label
from bertsmith.hub.models import model_folder, origin
from bertsmith.network.config import ModelConfig
from bertsmith.network.encoded import NO_TAPS
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.distil.config import DistilConfig, DistilRun
from bertsmith.recipes.distil.methods import (
    TeacherSupervision,
    answer_of,
    check_method,
    check_teaches,
    method_terms,
    units_of,
)
from bertsmith.recipes.distil.report import (
    Contender,
    conclusions,
    degenerate_notes,
    folder_bytes,
    show,
    write_card,
    write_report,
)
from bertsmith.recipes.distil.speed import Speed, choose_student, measure_speeds, sample_requests
from bertsmith.recipes.distil.student import (
    NewStudent,
    can_take_layers,
    can_take_token_table,
    check_start,
    check_vocabulary,
    chosen_layers,
)
from bertsmith.recipes.distil.teacher import TeacherOutputs, TeacherRows
from bertsmith.recipes.distil.transfer_set import (
    check_masked_lm,
    check_replaceable,
    read_unlabelled,
    with_more_rows,
)
from bertsmith.recipes.finetune.baselines import BaselineScores
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import (
    FilesRead,
    Inputs,
    LabelledData,
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
from bertsmith.recipes.finetune.tfidf import tfidf_baseline
from bertsmith.recipes.finetune.trial import LABELS, Supervision, Trial, TrialResult
from bertsmith.recipes.finetune.trials import ParallelPlan, Trials, open_trials, plan_trials
from bertsmith.recipes.predict.evaluate import check_known
from bertsmith.recipes.predict.reading import reading_as_trained
from bertsmith.recipes.resources import parameters
from bertsmith.tasks.answering import measure, task_predictor
from bertsmith.tasks.task import clusters_of
from bertsmith.tasks.uncertainty import Difference, difference_of, holm
from bertsmith.training.run_folder import RunFolder, read_record, write_record
from bertsmith.weights.folder import load_model, read_config
from bertsmith.weights.tensors import weights_hash
from bertsmith.weights.versions import FolderVersion

PLAIN = "plain"
_OUTPUTS, _BASELINES, _SPEEDS, _RESULTS = (
    "teacher-outputs", "baselines.json", "speeds.json", "results.json",
)  # fmt: skip
# a student has more to learn than a model that is fine-tuned
_EPOCHS = 6


@dataclass(frozen=True, kw_only=True)
class DistilOutcome:
    """The outcome of a run on labelled examples; the first of the `contenders` is the teacher.

    `differences` are those of each method to the plain student on dev; `best` is the place of the
    training whose model is kept.
    """

    folder: Path
    model: Path
    data: LabelledData[Any]
    contenders: tuple[Contender, ...]
    methods: tuple[str, ...]
    differences: dict[str, Difference]
    best: str

    def __repr__(self) -> str:
        name = score_label(next(iter(self.contenders[0].scores[0])))
        scores = ", ".join(
            f"{contender.name} {percent(contender.mean)}" for contender in self.contenders
        )
        return f"<DistilOutcome {str(self.folder)!r}: {self.data.task.name}, {name} in %: {scores}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "task": self.data.task.name,
            "entrants": [contender.to_dict() for contender in self.contenders],
            "differences": {
                name: difference.to_dict() for name, difference in self.differences.items()
            },
            "best": self.best,
            "train": len(self.data.train),
            "dev": len(self.data.dev),
            "dev_is_cut": self.data.dev_is_cut,
        }


def distil_task(config: DistilConfig) -> DistilOutcome:
    """Teach students a task, print scores and speeds, and keep the best student in `out`/model.

    Raises `ExampleError`, `ConfigError`, `ModelFolderError` or `RunFolderError` before anything is
    written, what `fit` raises, and `WorkerDied`; after an interruption the same call resumes, and
    one with more `seeds` adds them.
    """
    device = device_named(config.device)
    folder = RunFolder(config.out)
    teacher = FolderVersion.of(config.teacher.resolve())
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
        ended = (
            folder.claim("distil", run, extensible="seeds") and (folder.path / _RESULTS).exists()
        )
        bad_rows = config.settings.reading.bad_rows.message()
        lines = (bad_rows, *notes, *describe(prepared), "" if ended else str(plan))
        for line in filter(None, lines):
            say(line)
        with open_trials(folder, plan) as trials:
            return _Distillation(
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
    trained = read_config(config.teacher).preprocessing
    reading = reading_as_trained(config.settings.reading, trained, str(config.data), labelled=True)
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
    train, dev = (
        task.labels.as_labelled(rows, teacher.labels)
        for rows in (inputs.data.train, inputs.data.dev)
    )
    for rows in (train, dev):
        check_known(task, rows, teacher.labels)
    data = replace(inputs.data, train=train, dev=dev, labels=teacher.labels)
    if settings.max_length is None and trained is not None:
        settings = replace(settings, max_length=trained.longest)
    trainings = config.seeds * (len(config.method) + config.plain)
    length = inputs.length(settings, trainings, device)
    if length.message:
        say(length.message)
    settings = replace(settings, max_length=_readable_length(config, length.longest))
    limits = limits_of(task, settings, teacher.encoder.longest)
    prepared = prepare(data, inputs.tokenizer, limits)
    return replace(config, settings=settings), inputs, prepared


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
    versions = () if named is None else (FolderVersion.of(named.resolve()),)
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
        teacher=config.teacher.resolve(),
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


@dataclass(frozen=True, kw_only=True)
class _Distillation:
    """A run that has begun."""

    config: DistilConfig
    run: DistilRun
    folder: RunFolder
    prepared: Prepared
    unlabelled: Sequence[Any]
    teacher: ModelConfig
    new: NewStudent
    trials: Trials

    def execute(self) -> DistilOutcome:
        """Carry out all trainings that have no result yet, and compare."""
        try:
            results = self._train()
        except KeyboardInterrupt as stopped:
            # another kind comes before the first training
            status = f"{stopped}, saved" if isinstance(stopped, Interrupted) else "interrupted"
            raise Interrupted(f"{status}; the same command resumes it") from None
        taught = {name: result for name, result in results.items() if name != PLAIN}
        best = max(taught, key=lambda name: max(item.rank for item in taught[name]))
        seed = max(taught[best], key=lambda training: training.rank).seed
        subfolder = f"{best}/seed-{seed}"
        baselines = self._baseline_scores()
        # by now the teacher has been opened for the last time
        self.new.check_versions()
        scored = {name: tuple(one.scores for one in result) for name, result in results.items()}
        card = write_card(self.run, best, seed, scored, baselines["teacher"])
        self.trials.move_model(subfolder, card)
        contenders = self._contenders(scored, baselines)
        outcome = DistilOutcome(
            folder=self.folder.path,
            model=self.folder.model,
            data=self.prepared.data,
            contenders=contenders,
            methods=tuple(taught),
            differences=self._differences(results),
            best=subfolder,
        )
        write_record(self.folder.path / _RESULTS, outcome.to_dict())
        show(contenders)
        lines = conclusions(outcome.contenders, outcome.methods, outcome.differences)
        constant = {name: [one.constant for one in result] for name, result in results.items()}
        lines += degenerate_notes(constant)
        for line in lines:
            say(line)
        write_report(self.folder.report, self.run, contenders, lines)
        shutil.rmtree(self.folder.path / _OUTPUTS, ignore_errors=True)
        say(f"{outcome.model} holds the student of {best}, seed {seed}, the best of them on dev")
        say(f"next: bertsmith predict {shell_word(outcome.model)} FILE")
        return outcome

    def _train(self) -> dict[str, list[TrialResult]]:
        """Return the results of each method's seeds, and of the plain student's."""
        prepared, settings = self._with_more_rows(), self.run.settings
        taught = {
            method: self._trials_of(method, settings, prepared, supervision)
            for method, supervision in self._supervisions(prepared).items()
        }
        # all at once, so that they can be trained side by side
        trained = iter(self.trials.train(list(chain(*taught.values())), keep_best=True))
        results = {method: [next(trained) for _ in trials] for method, trials in taught.items()}
        if self.run.plain:
            plain = self._trials_of(PLAIN, self._plain_settings(), self.prepared, LABELS)
            results[PLAIN] = self.trials.train(plain)
        return results

    @property
    def _seeds(self) -> range:
        return range(self.run.settings.seed, self.run.settings.seed + self.run.seeds)

    def _trials_of(
        self, name: str, settings: FinetuneSettings, prepared: Prepared, supervision: Supervision
    ) -> list[Trial]:
        """Return the trainings of all seeds."""
        # of the rows of this training: more rows have another mean
        mean, spread = units_of(prepared.data)
        new = replace(self.new, mean=mean, spread=spread)
        return [
            Trial(
                subfolder=f"{name}/seed-{seed}",
                title=f"{name}, seed {seed} ({number} of {self.run.seeds})",
                settings=settings,
                seed=seed,
                make_model=new,
                prepared=prepared,
                supervision=supervision,
            )
            for number, seed in enumerate(self._seeds, 1)
        ]

    def _plain_settings(self) -> FinetuneSettings:
        """Return the settings that make as many steps of the labelled rows, in whole epochs."""
        prepared, settings = self.prepared, self.run.settings
        # of long texts each window counts
        labelled = len(prepared.train)
        taught = labelled * (1 + self.run.teaching.augment)
        if self.unlabelled:
            encode = prepared.task.answers.encode
            taught += len(encode(prepared.tokenizer, self.unlabelled, prepared.limits))
        return replace(settings, epochs=-(-settings.chosen_epochs * taught // labelled))

    def _with_more_rows(self) -> Prepared:
        """Return the rows to teach with; those labelled alone where nothing is left to teach."""
        teaching, prepared = self.config.teaching, self.prepared
        if not (teaching.augment or self.unlabelled) or self._taught():
            return prepared
        teacher, seed = self.config.teacher, self.run.settings.seed
        return with_more_rows(prepared, self.unlabelled, teaching, teacher, self.new.device, seed)

    def _taught(self) -> bool:
        """Return whether all trainings with a teacher have a result."""
        return all(
            self.trials.result(f"{method}/seed-{seed}") is not None
            for method in self.run.method
            for seed in self._seeds
        )

    def _supervisions(self, prepared: Prepared) -> dict[str, Supervision]:
        """Return the supervision of each method; outputs of the teacher that are kept are made."""
        answer, config = answer_of(self.prepared.task), self.config
        encoders = self.teacher.encoder, self.new.config.encoder
        taps = NO_TAPS
        for method in config.method:
            taps |= method_terms(method, *encoders, config.teaching, answer, seed=0).taps
        outputs = TeacherOutputs(
            taps=taps, answer=answer, precision=config.settings.chosen_precision
        )
        taught = TeacherRows(config.teacher, prepared.train, outputs, self.new.device)
        if not self._taught():
            cache = config.teaching.cache or self.folder.path / _OUTPUTS
            taught = taught.keep(cache.resolve(), config.teaching.cache_gigabytes)
        return {
            method: TeacherSupervision(
                method=method, teaching=config.teaching, teacher=encoders[0], student=encoders[1],
                taught=taught, answer=answer,
            )
            for method in config.method
        }  # fmt: skip

    def _baseline_scores(self) -> dict[str, Any]:
        """Return the scores of the baselines, kept from an earlier part of the run."""
        path = self.folder.path / _BASELINES
        if path.exists():
            return read_record(path)
        dropped, baseline = self.new.dropped(), None
        scores: dict[str, Any] = {"teacher": self._measured(load_model(self.config.teacher)[0])}
        if dropped is not None:
            scores["dropped"] = self._measured(dropped)
        if self.run.settings.baseline:
            baseline = tfidf_baseline(self.prepared, self.run.settings.baseline_seconds)
        if isinstance(baseline, BaselineScores):
            scores["tfidf"] = baseline.to_dict()
        elif baseline is not None:
            say(str(baseline))
        write_record(path, scores)
        return scores

    def _measured(self, model: Model) -> dict[str, float]:
        predictor = task_predictor(
            self.prepared.task,
            model.to(self.new.device),
            self.prepared.tokenizer,
            self.prepared.limits,
        )
        return measure(predictor, self.prepared.data.dev, self.prepared.dev).scores

    def _speeds(self) -> dict[str, Speed]:
        path = self.folder.path / _SPEEDS
        if not path.exists():
            answering, requests = sample_requests(self.prepared, self.teacher.labels)
            teacher, _ = load_model(self.config.teacher)
            student = build_model(self.new.config, seed=0)
            models = {
                "teacher": teacher.to(self.new.device),
                "student": student.to(self.new.device),
            }
            speeds = measure_speeds(models, answering, requests)
            write_record(path, {name: vars(result) for name, result in speeds.items()})
        return {name: Speed(**value) for name, value in read_record(path).items()}

    def _contenders(
        self, scored: dict[str, tuple[dict[str, float], ...]], baselines: dict[str, Any]
    ) -> tuple[Contender, ...]:
        speeds, encoder = self._speeds(), self.teacher.encoder
        contenders = [
            Contender(
                name="teacher",
                scores=(baselines["teacher"],),
                shape=f"{encoder.layers}/{encoder.hidden}",
                parameters=parameters(self.teacher),
                bytes=folder_bytes(self.config.teacher),
                speed=speeds["teacher"],
            )
        ]
        encoder = self.new.config.encoder
        student = Contender(
            name="",
            scores=(),
            shape=f"{encoder.layers}/{encoder.hidden}",
            parameters=parameters(self.new.config),
            bytes=folder_bytes(self.folder.model),
            speed=speeds["student"],
        )
        names = {PLAIN: "plain, labels alone"}
        contenders += [
            replace(student, name=names.get(name, name), scores=scores)
            for name, scores in scored.items()
        ]
        if "dropped" in baselines:
            name = "layers dropped, untrained"
            contenders.append(replace(student, name=name, scores=(baselines["dropped"],)))
        if "tfidf" in baselines:
            tfidf = baselines["tfidf"]
            contenders.append(Contender(name=tfidf["name"], scores=tuple(tfidf["scores"])))
        return tuple(contenders)

    def _differences(self, results: dict[str, list[TrialResult]]) -> dict[str, Difference]:
        """Return the difference of each method from the plain student on resampled dev rows.

        The p-values are corrected for the number of methods.
        """
        if PLAIN not in results:
            return {}
        data = self.prepared.data
        evidence = {
            name: [self.trials.evidence(f"{name}/seed-{result.seed}") for result in seeds]
            for name, seeds in results.items()
        }
        plain = evidence.pop(PLAIN)
        clusters = clusters_of(data.task, data.dev, plain[0])
        return holm(
            {
                name: difference_of(data.task, data.labels, value, plain, clusters)
                for name, value in evidence.items()
            }
        )
