"""Comparison of two fine-tuning runs by their predictions on the same dev rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.core.errors import RunFolderError
from bertsmith.core.log import say
from bertsmith.core.options import options_of
from bertsmith.evaluation.metrics import format_mean, percent, score_label
from bertsmith.evaluation.significance import Clusters, Statistic, over_seeds, welch_margin
from bertsmith.recipes.finetune.config import CompareConfig
from bertsmith.recipes.finetune.recipe import FinetuneRun
from bertsmith.recipes.finetune.trial import read_clusters, read_evidence
from bertsmith.tasks.config import Reading
from bertsmith.tasks.rows import task_named
from bertsmith.tasks.task import Evidence, Task
from bertsmith.tasks.uncertainty import (
    CERTAIN,
    RESAMPLES,
    Difference,
    difference_of,
    mcnemar_of,
    paired_difference,
    score_of_resamples,
    units_of,
)
from bertsmith.training.run_folder import RunFolder, read_record

# means of scores that agree differ by no more
_EQUAL = 1e-12


@dataclass(frozen=True, kw_only=True)
class _FinishedRun:
    """A finished run: its settings, its scores, and the evidence of its seeds."""

    path: Path
    run: FinetuneRun
    results: dict[str, Any]
    evidence: Evidence
    """Evidence of the best seed."""
    seeds: tuple[Evidence, ...]
    clusters: Clusters
    """The dev rows that belong together."""

    @property
    def task(self) -> Task[Any]:
        """Return the task."""
        return task_named(self.run.task)

    def statistic(self, name: str) -> Statistic:
        """Return the function that computes a score on some of the dev rows."""
        measuring = self.task.measuring
        # what was tuned on all of dev is kept on resampled rows
        tuned = measuring.tune(self.evidence)
        return score_of_resamples(measuring, self.evidence, self.run.labels, tuned, name)

    def score(self, name: str) -> float:
        """Return a score of the best seed."""
        return self.statistic(name)(np.arange(len(self.evidence)))

    def dev_files(self) -> tuple[object, ...]:
        """Return the identity of the dev rows, but for the way their file was read."""
        run = self.run
        if run.dev_hash is not None:
            return (run.dev_hash,)
        return run.train_hash, run.settings.dev_share, run.settings.seed


def compare(config: CompareConfig) -> dict[str, Any]:
    """Print how two runs differ on dev (best seeds, all seeds), and what chance may explain.

    Returns the figures. Raises `RunFolderError` for unfinished runs, different dev rows, or one run
    given twice.
    """
    first, second = config.first, config.second
    one, other = _read_run(first), _read_run(second)
    if first.samefile(second):
        raise RunFolderError(f"is the same run as {first}", where=second, remedy="name another one")
    if one.run.task != other.run.task:
        raise RunFolderError(
            f"is a run of {other.run.task}, and {first} one of {one.run.task}", where=second
        )
    _check_same_rows(one, other)
    scores = {name: _difference(one, other, name) for name in one.results["scores"]}
    name, figures = next(iter(scores)), dict[str, Any](rows=len(one.evidence), scores={})
    for run in (one, other):
        values = [seed["scores"][name] for seed in run.results["seeds"]]
        best = run.results["best_seed"]
        say(f"{run.path}: {score_label(name)} {format_mean(values)} %, best seed {best}")
    for score, difference in scores.items():
        first_score, second_score = one.score(score), other.score(score)
        both = {"first": first_score, "second": second_score}
        figures["scores"][score] = both | _plain(difference)
        say(
            f"{score_label(score)} of the best seeds: {percent(first_score)} and "
            f"{percent(second_score)}, difference {100 * difference.points:+z.2f} "
            f"(95 %: {difference.interval().removesuffix(' points')}; p = {difference.p:.3g})"
        )
    if len(scores) > 1:
        say(
            f"the verdict is by {score_label(name)} alone: the p-values of the other scores are "
            "not corrected for their number"
        )
    p = scores[name].p
    test = mcnemar_of(one.task, one.evidence, other.evidence)
    if test is not None:
        say(
            f"right in the first alone: {test.only_first:,}, in the second alone: "
            f"{test.only_second:,}; McNemar's exact p = {test.exact:.3g}"
        )
        figures["mcnemar"] = {
            "only_first": test.only_first,
            "only_second": test.only_second,
            "exact": test.exact,
        }
        p = max(p, test.exact)
    say(_verdict(p, scores[name].points))
    say(_compare_all_seeds(one, other, name, figures))
    return figures


def _check_same_rows(first: _FinishedRun, second: _FinishedRun) -> None:
    """Raise `RunFolderError` for runs that were not measured on the same rows, read alike."""
    one, other = (_rows_read(run.run.settings.reading) for run in (first, second))
    options = [
        option.shown
        for option in options_of(Reading).values()
        if attrgetter(".".join(option.path))(one) != attrgetter(".".join(option.path))(other)
    ]
    if first.dev_files() == second.dev_files() and options:
        raise RunFolderError(
            f"read its dev rows with another {' and '.join(options)} than {first.path}",
            where=second.path,
            remedy="fine-tune both with the same",
        )
    if first.dev_files() != second.dev_files() or len(first.evidence) != len(second.evidence):
        raise RunFolderError(
            f"was measured on other dev rows than {first.path}",
            where=second.path,
            remedy="fine-tune both with the same --dev",
        )


def _rows_read(reading: Reading) -> Reading:
    """Return a reading without what makes no difference to the rows of a file and their labels."""
    labels, classes, exclude = (
        tuple(sorted(names))
        for names in (reading.columns.labels, reading.columns.classes, reading.columns.exclude)
    )
    columns = replace(reading.columns, labels=labels, classes=classes, exclude=exclude)
    # of the rows of the same files that are left out, none differ
    return replace(reading, on_bad="fail", columns=columns)


def _verdict(p: float, difference: float) -> str:
    if abs(difference) < _EQUAL:
        return "so these two models score the same on these rows"
    if p >= CERTAIN:
        return "so these two models may well differ by luck alone"
    better = "first" if difference > 0 else "second"
    return f"the {better} model is better on rows like these"


def _compare_all_seeds(
    first: _FinishedRun, second: _FinishedRun, name: str, figures: dict[str, Any]
) -> str:
    """Return a sentence on the difference over all seeds; add the difference to the figures."""
    values = [[seed["scores"][name] for seed in item.results["seeds"]] for item in (first, second)]
    if min(map(len, values)) < 2:
        return "one seed is not enough to compare the recipes: use --seeds 5"
    difference = difference_of(
        first.task, first.run.labels, first.seeds, second.seeds, first.clusters
    )
    margin = welch_margin(values[0], values[1])
    certain = difference.certain and abs(difference.points) > difference.margin(margin)
    figures["all_seeds"] = {**_plain(difference), "seed_margin": margin, "certain": certain}
    better = "the first" if difference.points > 0 else "the second"
    conclusion = (
        f"{better} recipe is better" if certain else "the recipes may well differ by luck alone"
    )
    if abs(difference.points) < _EQUAL:
        conclusion = "the recipes score the same on these rows"
    return (
        f"means of all seeds differ by {100 * difference.points:+z.2f} points (95 %: "
        f"{difference.interval()}; {over_seeds(margin)}): "
        f"{conclusion}"
    )


def _plain(difference: Difference) -> dict[str, float | None]:
    """Return a difference as plain JSON values."""
    values = difference.to_dict()
    return {"difference": values.pop("points"), **values}


def _difference(first: _FinishedRun, second: _FinishedRun, name: str) -> Difference:
    evidences = [first.evidence, second.evidence]
    units = units_of(first.task, evidences, first.run.labels, first.clusters, name)
    return paired_difference(
        first.statistic(name),
        second.statistic(name),
        first.clusters,
        units,
        resamples=RESAMPLES,
    )


def _read_run(folder: Path) -> _FinishedRun:
    results, folder_of_run = folder / "results.json", RunFolder(folder)
    remedy = "name the --out of bertsmith finetune; the same command again finishes it"
    try:
        settings = folder_of_run.settings("finetune") if results.exists() else None
    except RunFolderError as error:
        # nothing is written to it
        raise RunFolderError(error.problem, where=error.where, remedy=remedy) from error
    if settings is None:
        raise RunFolderError("is not a finished fine-tuning run", where=folder, remedy=remedy)
    folder_of_run.check_version()
    content = read_record(results)
    run = FinetuneRun.from_dict(settings, where=folder / "run.json")
    seeds = [content["best_seed"], *(seed["seed"] for seed in content["seeds"])]
    folders = [folder / "seeds" / f"seed-{seed}" for seed in seeds]
    best, *others = map(read_evidence, folders)
    return _FinishedRun(
        path=folder,
        run=run,
        results=content,
        evidence=best,
        seeds=tuple(others),
        clusters=read_clusters(folders[0]),
    )
