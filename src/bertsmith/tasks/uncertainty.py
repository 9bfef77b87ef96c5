"""Intervals of a task's scores, and differences between models that answered the same rows.

Rows are resampled for model and baseline alike (a paired bootstrap), those that belong together as
one; if there is one model and one baseline, and answers are right or wrong, McNemar's test has to
agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.printable import counted
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
)
from bertsmith.tasks.task import (
    Evidence,
    Labels,
    Measuring,
    Task,
    Tuned,
    right_rows,
)

CERTAIN = 0.05
RESAMPLES = 2000
# if several seeds are scored on every resample
_RESAMPLES_OF_SEEDS = 1000


def interval_of(
    task: Task[Any],
    evidence: Evidence,
    labels: Labels,
    clusters: Clusters,
    tuned: Tuned | None = None,
    name: str | None = None,
) -> Interval:
    """Return the 95 % interval of a score, the one that counts most where none is named.

    Over clusters of rows drawn anew from these, with what was tuned on all of them: it is that
    model, not a tuning for each draw, that will be asked on other rows. Without bounds where these
    rows, which all agree, tell nothing of others.
    """
    measuring = task.measuring
    thresholds = measuring.tune(evidence) if tuned is None else tuned
    name = measuring.primary(labels, thresholds)[0] if name is None else name
    score = score_of_resamples(measuring, evidence, labels, thresholds, name)
    interval = bootstrap_interval(clusters.statistic(score), clusters.count, resamples=1000)
    units = measuring.units(evidence, name)
    return share_interval(interval, None if units is None else clusters.having(units))


def score_of_resamples(
    measuring: Measuring[Any],
    evidence: Evidence,
    labels: Labels,
    tuned: Tuned,
    name: str | None = None,
) -> Statistic:
    """Return the function from drawn rows of evidence to a score, the primary one if none is named.

    Rows that have none, as correlations with one constant side, score NaN and not 0: bootstraps
    leave them out. Where that is so of all the evidence, the scores of any rows are what it has.
    """
    name = name or measuring.primary(labels, tuned)[0]
    if (statistic := measuring.statistic(evidence, name)) is not None:
        return statistic
    score = measuring.scoring(labels, tuned)[name]
    defined = measuring.defined(evidence)

    def score_of(drawn: NDArray[np.int64]) -> float:
        rows = evidence[drawn]
        return math.nan if defined and not measuring.defined(rows) else score(rows)

    return score_of


def clusters_note(clusters: Clusters) -> str:
    """Return a sentence on rows that intervals draw together, "" where there are none."""
    rows, count = len(clusters.numbers), clusters.count
    if count == rows:
        return ""
    return (
        "intervals draw rows of one context, document, text or group together: "
        f"{counted(count, 'group')} of {rows:,} rows"
    )


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


def difference_of(
    task: Task[Any],
    labels: tuple[str, ...],
    ours: Sequence[Evidence],
    theirs: Sequence[Evidence],
    clusters: Clusters,
) -> Difference:
    """Compare the mean scores of one or more models and one or more baselines on the same rows.

    `clusters` are the rows that belong together.
    """
    several = len(ours) + len(theirs) > 2
    difference = paired_difference(
        _mean_score(task, labels, ours),
        _mean_score(task, labels, theirs),
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


def of_best(difference: Difference, baselines: int) -> Difference:
    """Return the difference to the best of some baselines, whose lead is partly that choice.

    The best of 15 that are as good as the model was ahead of it for certain in a quarter of the
    cases. A lead of the baseline is tested as one of as many (Bonferroni); one of the model, which
    is ahead of all of them, needs no correction.
    """
    p = min(1.0, baselines * difference.p) if difference.points < 0 else difference.p
    return replace(difference, p=p, baselines=baselines)


def holm(differences: Mapping[str, Difference]) -> dict[str, Difference]:
    """Return differences with p-values corrected for their number (Holm 1979), in their order.

    Otherwise one of five independent ones that are none is significant at 5 % in 23 % of the cases.
    """
    corrected, largest = dict(differences), 0.0
    for rank, name in enumerate(sorted(differences, key=lambda name: differences[name].p)):
        p = min(1.0, (len(differences) - rank) * differences[name].p)
        largest = max(largest, p)
        corrected[name] = replace(differences[name], p=largest)
    return corrected


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
