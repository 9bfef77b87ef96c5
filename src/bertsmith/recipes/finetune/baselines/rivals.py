"""How far a model and a contestant are apart on dev, and whether that may be luck.

Dev rows are drawn anew for both alike (a paired bootstrap); where one model stands against one
contestant and answers are right or wrong, McNemar's test has to agree.
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
    """A contestant's scores on dev, one set of them a seed, and how long it took in all.

    `simpler` tells that it needs no network to be trained; `detail` is worth knowing of it;
    `evidence` tells how right it is on each row of dev, where there is one set of scores.
    """

    name: str
    scores: tuple[Scores, ...]
    seconds: float
    simpler: bool
    detail: str = ""
    evidence: Evidence | None = None

    def values(self, name: str) -> list[float]:
        """A score, seed by seed."""
        return [each[name] for each in self.scores if name in each]

    @property
    def mean(self) -> float:
        """The mean of the score that counts most."""
        return mean_and_spread([next(iter(each.values())) for each in self.scores])[0]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, without the evidence."""
        values = self.__dict__ | {"scores": list(self.scores)}
        del values["evidence"]
        return values

    def to_file(self) -> dict[str, Any]:
        """As plain JSON values, with the evidence."""
        kept = None if self.evidence is None else self.evidence.tolist()
        return self.to_dict() | {"evidence": kept}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Rival:
        """What `to_file` gave."""
        found = data.get("evidence")
        evidence = None if found is None else np.array(found, np.float64)
        return cls(**data | {"scores": tuple(data["scores"]), "evidence": evidence})


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A contestant that was not tried, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} was not tried: {self.reason}"


CERTAIN = 0.05
RESAMPLES = 2000
# where several seeds are scored on every draw
_RESAMPLES_OF_SEEDS = 1000


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A model's mean score less another's on the same dev rows."""

    points: float
    """As a share of 1."""
    low: float
    high: float
    """Between which it lies on 95 % of the dev sets drawn anew."""
    p: float
    """How likely so large a difference would be if there was none."""

    @property
    def certain(self) -> bool:
        """Whether it is more than the luck of which rows dev has."""
        return self.p < CERTAIN

    def interval(self, *, of_other: bool = False) -> str:
        """Return the interval in points, of the other's lead where that is asked for."""
        low, high = (-self.high, -self.low) if of_other else (self.low, self.high)
        return f"{100 * low:+.2f} to {100 * high:+.2f} points"


def difference_of(
    task: Task[Any], labels: tuple[str, ...], ours: Sequence[Evidence], theirs: Sequence[Evidence]
) -> Difference:
    """Compare the mean scores of some models, or of one, and of some contestants or one."""
    several = len(ours) + len(theirs) > 2
    found = paired_bootstrap(
        _mean_score(task, labels, ours),
        _mean_score(task, labels, theirs),
        len(ours[0]),
        resamples=_RESAMPLES_OF_SEEDS if several else RESAMPLES,
    )
    p = max(found.p, least_p(len(ours[0])))
    rights = [task.tuned(each[0]).right(each[0]) for each in (ours, theirs)]
    if not several and rights[0] is not None and rights[1] is not None:
        p = max(p, mcnemar(rights[0], rights[1]).exact)
    return Difference(
        points=found.difference, low=found.interval.low, high=found.interval.high, p=p
    )


def from_constant(mean: float, interval: Interval, constant: float, count: int) -> Difference:
    """Compare with a score that is the same whatever is drawn, by a model's interval on `count`."""
    low, high = interval.low - constant, interval.high - constant
    p = 1.0 if low <= 0 <= high else least_p(count)
    return Difference(points=mean - constant, low=low, high=high, p=p)


def least_p(count: int) -> float:
    """Return the least p that so many paired examples can give: all on one side (a sign test).

    A bootstrap of few examples that agree has no width, and would be certain of anything.
    """
    return min(1.0, 2.0 ** (1 - count))


def _mean_score(
    task: Task[Any], labels: tuple[str, ...], evidences: Sequence[Evidence]
) -> Statistic:
    """The mean over some models of the score that counts most, of the rows drawn."""
    # what was tuned on all rows stays when some are drawn
    tuned = [task.tuned(evidence) for evidence in evidences]

    def score(drawn: NDArray[np.int64]) -> float:
        scores = [
            next(iter(each.scores(evidence[drawn], labels).values()))
            for each, evidence in zip(tuned, evidences, strict=True)
        ]
        return float(np.mean(scores))

    return score
