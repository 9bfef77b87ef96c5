"""The trainings of a distillation on labelled examples, and what they are compared with."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from bertsmith.core.log import say
from bertsmith.core.printable import shell_word
from bertsmith.core.signals import Interrupted
from bertsmith.evaluation.metrics import percent, score_label
from bertsmith.network.config import ModelConfig
from bertsmith.network.encoded import NO_TAPS
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.distil.config import DistilConfig, DistilRun
from bertsmith.recipes.distil.methods import TeacherSupervision, answer_of, method_terms, units_of
from bertsmith.recipes.distil.report import (
    Contender,
    conclusions,
    degenerate_notes,
    folder_bytes,
    show,
    write_card,
    write_report,
)
from bertsmith.recipes.distil.speed import Speed, measure_speeds, sample_requests
from bertsmith.recipes.distil.student import NewStudent
from bertsmith.recipes.distil.teacher import TeacherOutputs, TeacherRows
from bertsmith.recipes.distil.transfer_set import with_more_rows
from bertsmith.recipes.finetune.baselines import BaselineScores
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared
from bertsmith.recipes.finetune.tfidf import tfidf_baseline
from bertsmith.recipes.finetune.trial import LABELS, Supervision, Trial, TrialResult
from bertsmith.recipes.finetune.trials import Trials
from bertsmith.recipes.resources import parameters
from bertsmith.tasks.answering import measure, task_predictor
from bertsmith.tasks.task import clusters_of
from bertsmith.tasks.uncertainty import Difference, difference_of, holm
from bertsmith.training.run_folder import RunFolder, read_record, write_record
from bertsmith.weights.folder import load_model

PLAIN = "plain"
RESULTS = "results.json"
"""File of the table, which is written last."""
_OUTPUTS, _BASELINES, _SPEEDS = "teacher-outputs", "baselines.json", "speeds.json"


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


@dataclass(frozen=True, kw_only=True)
class Distillation:
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
        write_record(self.folder.path / RESULTS, outcome.to_dict())
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
