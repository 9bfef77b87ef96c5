"""The outcome of a fine-tuning run: scores of all seeds, differences to baselines, conclusions.

Dev rows are resampled for model and baseline alike (a paired bootstrap); if there is one model and
one baseline, and answers are right or wrong, McNemar's test has to agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.log import console, say, table_of
from bertsmith.core.printable import counted
from bertsmith.evaluation.metrics import format_mean, mean_and_spread, percent, score_label
from bertsmith.evaluation.significance import (
    NO_INTERVAL,
    Clusters,
    Interval,
    McNemar,
    Statistic,
    bootstrap_interval,
    mcnemar,
    paired_bootstrap,
    share_interval,
    welch_margin,
)
from bertsmith.recipes.finetune.baselines import TF_IDF, BaselineScores
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData
from bertsmith.recipes.finetune.trial import TrialResult
from bertsmith.tasks.task import Evidence, Task, right_rows, score_of_resamples

CERTAIN = 0.05
RESAMPLES = 2000
# if several seeds are scored on every resample
_RESAMPLES_OF_SEEDS = 1000


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of the mean scores of two models on the same dev rows."""

    points: float
    """Difference as a share of 1."""
    low: float
    high: float
    """Bounds of the 95 % interval over resampled dev sets, NaN where these rows give none."""
    p: float
    """Probability of a difference as large if there was none."""
    baselines: int = 1
    """Number of baselines of which the best was chosen by these rows."""

    @property
    def certain(self) -> bool:
        """Return whether the difference is significant over dev sets."""
        return self.p < CERTAIN

    @property
    def contradicts_interval(self) -> bool:
        """Return whether it is not significant although the interval does not contain 0.

        The p-value is the largest of several tests, some of them exact (`difference_of`).
        """
        return not self.certain and (self.low > 0 or self.high < 0)

    def margin(self, seed_margin: float) -> float:
        """Return the largest difference that chance explains at 95 %, in dev rows and seeds alike.

        Both add to the variance: where they are equal, with many seeds, a sixth of the differences
        of models that are equally good exceed each of the two margins.
        """
        rows = self.points - self.low if self.points > 0 else self.high - self.points
        return math.hypot(seed_margin, 0.0 if math.isnan(rows) else rows)

    def interval(self, *, of_other: bool = False) -> str:
        """Return the interval in points, with the sign reversed for `of_other`."""
        low, high = (-self.high, -self.low) if of_other else (self.low, self.high)
        if math.isnan(low):
            return NO_INTERVAL
        return f"{100 * low:+z.2f} to {100 * high:+z.2f} points"

    def to_dict(self) -> dict[str, float | None]:
        """Return the figures as plain JSON values, null for bounds that there are not.

        The number of baselines is left out where there is no choice.
        """
        values = dict(vars(self))
        if self.baselines == 1:
            del values["baselines"]
        return {name: None if math.isnan(value) else value for name, value in values.items()}


def of_best(difference: Difference, baselines: int) -> Difference:
    """Return the difference to the best of some baselines, whose lead is partly that choice.

    The best of 15 that are as good as the model was ahead of it for certain in a quarter of the
    cases. A lead of the baseline is tested as one of as many (Bonferroni); one of the model, which
    is ahead of all of them, needs no correction.
    """
    p = min(1.0, baselines * difference.p) if difference.points < 0 else difference.p
    return replace(difference, p=p, baselines=baselines)


def difference_of(
    task: Task[Any],
    labels: tuple[str, ...],
    ours: Sequence[Evidence],
    theirs: Sequence[Evidence],
    clusters: Clusters,
    *,
    their_labels: tuple[str, ...] | None = None,
) -> Difference:
    """Compare the mean scores of one or more models and one or more baselines on the same rows.

    `clusters` are the rows that belong together; `their_labels` are those of the baselines, where
    they are others.
    """
    several = len(ours) + len(theirs) > 2
    difference = paired_difference(
        _mean_score(task, labels, ours),
        _mean_score(task, labels if their_labels is None else their_labels, theirs),
        clusters,
        units_of(task, [*ours, *theirs], labels, clusters),
        resamples=_RESAMPLES_OF_SEEDS if several else RESAMPLES,
    )
    test = None if several else mcnemar_of(task, ours[0], theirs[0])
    return difference if test is None else replace(difference, p=max(difference.p, test.exact))


def paired_difference(
    first: Statistic,
    second: Statistic,
    clusters: Clusters,
    units: int | None,
    *,
    resamples: int,
) -> Difference:
    """Compare two scores on resamples of the same dev rows, of those that belong together as one.

    `units` counts the clusters over which they are means, None for scores that are none.
    """
    bootstrap = paired_bootstrap(
        clusters.statistic(first), clusters.statistic(second), clusters.count, resamples=resamples
    )
    interval = share_interval(bootstrap.interval, units, lowest=-1.0)
    return Difference(
        points=bootstrap.difference,
        low=interval.low,
        high=interval.high,
        p=max(bootstrap.p, smallest_p(clusters.count if units is None else units)),
    )


def mcnemar_of(task: Task[Any], first: Evidence, second: Evidence) -> McNemar | None:
    """Return McNemar's test of two models; None where rows are right by degrees."""
    rights = right_rows(task, first), right_rows(task, second)
    return None if rights[0] is None or rights[1] is None else mcnemar(rights[0], rights[1])


def interval_of_mean(
    task: Task[Any], labels: tuple[str, ...], evidences: Sequence[Evidence], clusters: Clusters
) -> Interval:
    """Return the 95 % interval of the mean primary score of some models on the same rows."""
    score = clusters.statistic(_mean_score(task, labels, evidences))
    interval = bootstrap_interval(score, clusters.count, resamples=_RESAMPLES_OF_SEEDS)
    return share_interval(interval, units_of(task, evidences, labels, clusters))


def units_of(
    task: Task[Any],
    evidences: Sequence[Evidence],
    labels: tuple[str, ...],
    clusters: Clusters,
    name: str | None = None,
) -> int | None:
    """Return the least number of clusters over which a score, the primary one first, is a mean.

    None for a score that is neither a share nor a mean.
    """
    measuring = task.measuring
    if name is None:
        name, _ = measuring.primary(labels, measuring.tune(evidences[0]))
    units = [measuring.units(evidence, name) for evidence in evidences]
    return min((clusters.having(rows) for rows in units if rows is not None), default=None)


def difference_to_constant(
    task: Task[Any],
    labels: tuple[str, ...],
    ours: Sequence[Evidence],
    constant: float,
    clusters: Clusters,
) -> Difference:
    """Compare the mean score of some models with a constant one, by the models' interval."""
    bootstrap = paired_bootstrap(
        clusters.statistic(_mean_score(task, labels, ours)),
        lambda drawn: constant,
        clusters.count,
        resamples=_RESAMPLES_OF_SEEDS,
    )
    interval = interval_of_mean(task, labels, ours, clusters)
    units = units_of(task, ours, labels, clusters)
    low, high = interval.low - constant, interval.high - constant
    p = max(bootstrap.p, smallest_p(clusters.count if units is None else units))
    if low <= 0 <= high:
        # the interval of rows that agree is exact, and wider than that of their resamples
        p = max(p, CERTAIN)
    return Difference(points=bootstrap.difference, low=low, high=high, p=p)


def smallest_p(count: int) -> float:
    """Return the least p that a number of paired examples allows: all on one side (a sign test).

    The bootstrap of a few examples that agree has no width, and would find any difference certain.
    """
    return min(1.0, 2.0 ** (1 - count))


def _mean_score(
    task: Task[Any], labels: tuple[str, ...], evidences: Sequence[Evidence]
) -> Statistic:
    """Return the function from resampled rows to the mean primary score of some models."""
    measuring = task.measuring
    # what was tuned on all rows is kept on resampled rows
    scores = [
        score_of_resamples(measuring, evidence, labels, measuring.tune(evidence))
        for evidence in evidences
    ]

    def mean(rows: NDArray[np.int64]) -> float:
        return float(np.mean([score(rows) for score in scores]))

    return mean


@dataclass(frozen=True, kw_only=True)
class GridCell:
    """A cell of the grid: its settings and its result."""

    settings: FinetuneSettings
    result: TrialResult

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "rate": self.settings.learning_rate,
            "batch": self.settings.batch_size,
            "epochs": self.settings.epochs,
            "scores": self.result.scores,
            "constant": self.result.constant,
            "seconds": self.result.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The result of a grid search: cells tried, and the number of cells in all."""

    cells: tuple[GridCell, ...]
    total: int

    @property
    def best(self) -> GridCell:
        """Return the best cell on dev."""
        return max(self.cells, key=lambda cell: cell.result.rank)

    def note(self) -> str:
        """Return a sentence on how the settings were chosen."""
        tried, settings = len(self.cells), self.best.settings
        score = f"{percent(self.best.result.score)} %"
        chosen = (
            f"rate {settings.learning_rate:g}, batch {settings.batch_size}, epochs "
            f"{settings.epochs}"
        )
        if tried == 1 < self.total:
            return (
                f"{chosen}: of {self.total} cells only this one was tried, so nothing was chosen; "
                f"more --minutes allow more of them (its score on dev: {score})"
            )
        return (
            f"{chosen}: the best on dev of {f'{tried} of ' * (tried < self.total)}{self.total} "
            "cells, each trained with a seed that is not among those below; its score there, "
            f"{score}, is too good, because the cell was chosen by it"
        )


_USUAL_SEEDS = 5
# share of cut texts above which it is mentioned
_MENTIONED = 0.05


def best_of(
    baselines: Sequence[BaselineScores], majority_baseline: tuple[str, float] | None
) -> tuple[str, float, bool] | None:
    """Return name and mean score of the best baseline, and whether it is simpler; or None."""
    ranked = [(baseline.name, baseline.mean, baseline.simpler) for baseline in baselines]
    if majority_baseline is not None:
        # last, so that of equal scores a trained baseline comes first
        ranked.append((*majority_baseline, True))
    return max(ranked, key=lambda baseline: baseline[1], default=None)


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The results of some seeds with a number of training rows."""

    rows: int
    results: tuple[TrialResult, ...]

    @property
    def values(self) -> list[float]:
        """Return the primary score of each seed."""
        return [result.score for result in self.results]


@dataclass(frozen=True, kw_only=True)
class FinetuneOutcome:
    """The outcome of a fine-tuning run; `model` is the folder of the best seed on dev.

    `majority_baseline` has a name and a score; `interval` is the bootstrap interval of the seeds'
    mean score over dev sets, and `notes` are remarks on it; `difference` is that to the best
    baseline, None without any; `long` counts the rows over the limit of `longest` tokens and `cut`
    those of them that were truncated.
    """

    folder: Path
    model: Path
    data: LabelledData[Any]
    seeds: tuple[TrialResult, ...]
    interval: Interval
    notes: tuple[str, ...]
    baselines: tuple[BaselineScores, ...]
    difference: Difference | None
    majority_baseline: tuple[str, float] | None
    grid: SearchResult | None
    curve: tuple[CurvePoint, ...]
    long: int
    cut: int
    longest: int

    def __repr__(self) -> str:
        name = self.names[0]
        score = f"{score_label(name)} {format_mean(self.values(name))} %"
        seeds = counted(len(self.seeds), "seed")
        return f"<FinetuneOutcome {str(self.folder)!r}: {self.data.task.name}, {score}, {seeds}>"

    @property
    def best(self) -> TrialResult:
        """Return the best seed on dev."""
        return max(self.seeds, key=lambda seed: seed.rank)

    @property
    def names(self) -> list[str]:
        """Return the names of the scores, the primary one first."""
        return list(self.seeds[0].scores)

    def values(self, name: str) -> list[float]:
        """Return a score of each seed."""
        return [seed.scores[name] for seed in self.seeds]

    @property
    def constant(self) -> int:
        """Return the number of degenerate seeds, which predict the same for every row."""
        return sum(seed.constant for seed in self.seeds)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        figures: dict[str, Any] = {"task": self.data.task.name, "scores": {}}
        for name in self.names:
            mean, spread = mean_and_spread(self.values(name))
            middle = median(self.values(name))
            figures["scores"][name] = {"mean": mean, "spread": spread, "median": middle}
        return figures | {
            "degenerate": self.constant,
            "seeds": [
                {name: value for name, value in seed.to_dict().items() if name != "losses"}
                for seed in self.seeds
            ],
            "best_seed": self.best.seed,
            "interval": [self.interval.low, self.interval.high] if self.interval.known else None,
            "notes": list(self.notes),
            "majority_baseline": None
            if self.majority_baseline is None
            else dict([self.majority_baseline]),
            "baselines": [baseline.to_dict() for baseline in self.baselines],
            "difference": None if self.difference is None else self.difference.to_dict(),
            "grid": None if self.grid is None else [cell.to_dict() for cell in self.grid.cells],
            "curve": [{"rows": point.rows, "scores": point.values} for point in self.curve],
            "labels": list(self.data.labels),
            "train": len(self.data.train),
            "dev": len(self.data.dev),
            "dev_is_cut": self.data.dev_is_cut,
            "long": self.long,
            "cut": self.cut,
        }

    def header(self) -> tuple[str, ...]:
        """Return the header of the table of scores."""
        return ("", *(f"{score_label(name)} %" for name in self.names), "seconds")

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table of scores: every seed, mean and spread, and the baselines."""
        rows = []
        for seed in self.seeds:
            name = f"seed {seed.seed}" + (" (predicts the same for every row)" * seed.constant)
            rows.append((name, *map(percent, seed.scores.values()), f"{seed.seconds:.1f}"))
        if (count := len(self.seeds)) > 1:
            seconds = mean_and_spread([seed.seconds for seed in self.seeds])[0]
            columns = [self.values(name) for name in self.names]
            rows.append((f"mean ± spread of {count}", *map(format_mean, columns), f"{seconds:.1f}"))
            rows.append((f"median of {count}", *(percent(median(of)) for of in columns), ""))
        for baseline in self.baselines:
            columns = [baseline.values(name) for name in self.names]
            seconds = baseline.seconds
            rows.append(
                (
                    baseline.name,
                    *(format_mean(of) if of else "" for of in columns),
                    f"{seconds:.1f}",
                )
            )
        if self.majority_baseline is not None:
            name, value = self.majority_baseline
            rows.append((name, percent(value), *[""] * len(self.names)))
        return rows

    @property
    def best_baseline(self) -> tuple[str, float, bool] | None:
        """Return name and mean score of the best baseline, and whether it is simpler."""
        return best_of(self.baselines, self.majority_baseline)

    def verdict(self) -> str:
        """Return a sentence on what wins on dev, and whether that is significant."""
        if self.best_baseline is None or self.difference is None:
            return "there is no baseline to compare it with"
        values = self.values(self.names[0])
        mean, count = mean_and_spread(values)[0], len(values)
        name, best, simpler = self.best_baseline
        points, difference = 100 * abs(mean - best), self.difference
        seed_margin = welch_margin(values, self._values_of(name) or [best])
        uncertainty = (
            f"95 % over dev sets of this size: {difference.interval(of_other=mean < best)}"
        )
        if difference.baselines > 1 and mean < best:
            uncertainty += (
                f", p = {difference.p:.2g} for the best of {difference.baselines} baselines"
            )
        elif difference.contradicts_interval:
            uncertainty += f", but by all tests of these rows p = {difference.p:.2g}"
        if count > 1:
            uncertainty += f"; over the seeds, by Welch's t: ±{100 * seed_margin:.2f}"
        wins = difference.certain and points > max(100 * difference.margin(seed_margin), 0.005)
        if not wins:
            verdict = (
                f"no winner: {percent(mean)} against {percent(best)} of {name}, and "
                f"{points:.2f} points may well be luck ({uncertainty})"
            )
        elif mean > best:
            verdict = f"the model wins by {points:.2f} points over {name} ({uncertainty})"
        else:
            verdict = (
                f"{name} wins by {points:.2f} points{', and is simpler' * simpler} ({uncertainty})"
            )
        if count == 1:
            verdict += "; one seed gives no spread: use --seeds 5"
        elif count < _USUAL_SEEDS and difference.certain and not wins:
            verdict += f"; so few seeds say little: use --seeds {_USUAL_SEEDS}"
        return verdict + self._read_less()

    def _values_of(self, name: str) -> list[float]:
        """Return the primary score of each seed of a baseline, none of the majority baseline."""
        baseline = next((item for item in self.baselines if item.name == name), None)
        return [] if baseline is None else baseline.values(self.names[0])

    def _read_less(self) -> str:
        """Return a note if the model read less of the texts than the bag of words, else ""."""
        texts = len(self.data.train) + len(self.data.dev)
        if self.cut < _MENTIONED * texts or not any(
            TF_IDF in baseline.name for baseline in self.baselines
        ):
            return ""
        return (
            f"; the model read at most {self.longest} tokens of each text, which cut "
            f"{100 * self.cut / texts:.0f} % of them, and {TF_IDF} all: --max-length N reads more, "
            "--truncation windows everything"
        )

    def choice(self) -> str:
        """Return a sentence on how the kept model was chosen."""
        if len(self.seeds) == 1:
            return f"{self.model} holds the model of seed {self.best.seed}"
        return (
            f"{self.model} holds the model of seed {self.best.seed}, the best of {len(self.seeds)} "
            f"on dev: expect the mean on new texts, not its {percent(self.best.score)} %"
        )

    def certainty(self) -> str:
        """Return a sentence on the uncertainty of a seed's score: of their mean, not of the best.

        An interval of the best one would be that of a score which these rows have chosen.
        """
        values = self.values(self.names[0])
        seeds = f"seed {self.best.seed}" if len(values) == 1 else f"mean of {len(values)} seeds"
        score = f"{seeds}: {score_label(self.names[0])} {percent(mean_and_spread(values)[0])} %"
        if not self.interval.known:
            return f"{score}; {NO_INTERVAL}"
        low, high = percent(self.interval.low), percent(self.interval.high)
        return f"{score}, 95 % interval over dev sets of this size {low} to {high}"


def print_outcome(outcome: FinetuneOutcome) -> None:
    """Print the table of scores and the conclusions, on standard error."""
    console.print(table_of(outcome.header(), outcome.rows(), numbers=True))
    for point in outcome.curve:
        say(f"{point.rows:>9,} {outcome.data.task.unit}: {format_mean(point.values)} %")
    for line in conclusions(outcome):
        say(line)


def conclusions(outcome: FinetuneOutcome) -> list[str]:
    """Return the conclusions drawn from the scores."""
    lines = [outcome.verdict(), outcome.certainty(), *outcome.notes]
    if outcome.constant:
        seeds = len(outcome.seeds)
        degenerate = (
            "the model predicts" if seeds == 1 else f"{outcome.constant} of {seeds} seeds predict"
        )
        lines.append(
            f"{degenerate} the same for every row: try another --learning-rate (small models need "
            "3e-4 to 1e-3, large ones less), or more epochs"
        )
    if outcome.grid is not None:
        lines.append(outcome.grid.note())
    return [*lines, outcome.choice()]
