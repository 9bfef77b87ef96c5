"""The difference between a model and a baseline on dev, and whether it is significant.

Dev rows are resampled for both alike (a paired bootstrap); if there is one model and one baseline,
and answers are right or wrong, McNemar's test has to agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.evaluation.metrics import mean_and_spread
from bertsmith.evaluation.significance import Interval, Statistic, mcnemar, paired_bootstrap
from bertsmith.tasks.task import Evidence, Scores, Task

TF_IDF = "TF-IDF"
TFIDF = f"{TF_IDF} + logistic regression"
TFIDF_NUMBERS = f"{TF_IDF} + ridge regression"


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A baseline's scores on dev, one set per seed, and its training time in seconds.

    `simpler` is true if no network has to be trained; `detail` is a remark for the report;
    `evidence` is how correct it is on each row of dev, if there is one set of scores.
    """

    name: str
    scores: tuple[Scores, ...]
    seconds: float
    simpler: bool
    detail: str = ""
    evidence: Evidence | None = None

    def values(self, name: str) -> list[float]:
        """Return a score of each seed."""
        return [scores[name] for scores in self.scores if name in scores]

    @property
    def mean(self) -> float:
        """Return the mean of the primary score."""
        return mean_and_spread([next(iter(scores.values())) for scores in self.scores])[0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the evidence."""
        values = self.__dict__ | {"scores": list(self.scores)}
        del values["evidence"]
        return values

    def to_file(self) -> dict[str, Any]:
        """Return plain JSON values, with the evidence."""
        kept = None if self.evidence is None else self.evidence.tolist()
        return self.to_dict() | {"evidence": kept}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Rival:
        """Return the baseline from the values of `to_file`."""
        values = data.get("evidence")
        evidence = None if values is None else np.array(values, np.float64)
        return cls(**data | {"scores": tuple(data["scores"]), "evidence": evidence})


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A baseline that was not tried, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} was not tried: {self.reason}"


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
    """Bounds of the 95 % interval over resampled dev sets."""
    p: float
    """Probability of a difference as large if there was none."""

    @property
    def certain(self) -> bool:
        """Return whether the difference is significant over dev sets."""
        return self.p < CERTAIN

    def interval(self, *, of_other: bool = False) -> str:
        """Return the interval in points, with the sign reversed for `of_other`."""
        low, high = (-self.high, -self.low) if of_other else (self.low, self.high)
        return f"{100 * low:+.2f} to {100 * high:+.2f} points"


def difference_of(
    task: Task[Any], labels: tuple[str, ...], ours: Sequence[Evidence], theirs: Sequence[Evidence]
) -> Difference:
    """Compare the mean scores of one or more models and one or more baselines."""
    several = len(ours) + len(theirs) > 2
    bootstrap = paired_bootstrap(
        _mean_score(task, labels, ours),
        _mean_score(task, labels, theirs),
        len(ours[0]),
        resamples=_RESAMPLES_OF_SEEDS if several else RESAMPLES,
    )
    p = max(bootstrap.p, least_p(len(ours[0])))
    rights = [task.tuned(evidences[0]).right(evidences[0]) for evidences in (ours, theirs)]
    if not several and rights[0] is not None and rights[1] is not None:
        p = max(p, mcnemar(rights[0], rights[1]).exact)
    return Difference(
        points=bootstrap.difference, low=bootstrap.interval.low, high=bootstrap.interval.high, p=p
    )


def from_constant(mean: float, interval: Interval, constant: float, count: int) -> Difference:
    """Compare with a constant score, by a model's interval on `count` examples."""
    low, high = interval.low - constant, interval.high - constant
    p = 1.0 if low <= 0 <= high else least_p(count)
    return Difference(points=mean - constant, low=low, high=high, p=p)


def least_p(count: int) -> float:
    """Return the least p that so many paired examples allow: all on one side (a sign test).

    The bootstrap of a few examples that agree has no width, and would find any difference certain.
    """
    return min(1.0, 2.0 ** (1 - count))


def _mean_score(
    task: Task[Any], labels: tuple[str, ...], evidences: Sequence[Evidence]
) -> Statistic:
    """Return the function from resampled rows to the mean primary score of some models."""
    # what was tuned on all rows is kept on resampled rows
    tuned = [task.tuned(evidence) for evidence in evidences]

    def score(drawn: NDArray[np.int64]) -> float:
        scores = [
            next(iter(task_.scores(evidence[drawn], labels).values()))
            for task_, evidence in zip(tuned, evidences, strict=True)
        ]
        return float(np.mean(scores))

    return score
