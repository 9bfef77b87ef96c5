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

from bertsmith.evaluation.comparing import mcnemar, paired_bootstrap
from bertsmith.evaluation.intervals import Interval, Statistic
from bertsmith.recipes.tasks.task import Evidence, Task

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
