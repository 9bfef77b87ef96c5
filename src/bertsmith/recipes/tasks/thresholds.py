"""When to give no answer: the doubt over which that is best (SQuAD 2.0: Rajpurkar et al. 2018).

Rows of evidence are exact match, F1, doubt, and whether there is an answer.
"""

from __future__ import annotations

import numpy as np

from bertsmith.recipes.tasks.task import Evidence


def with_threshold(evidence: Evidence, threshold: float) -> Evidence:
    """Exact match and F1 (rows, 2) where no answer is given for a doubt over the threshold."""
    silent = evidence[:, 2] > threshold
    return np.where(silent[:, None], 1 - evidence[:, 3:], evidence[:, :2])


def best_threshold(evidence: Evidence, column: int = 1) -> float:
    """The least threshold with the best mean of a column, F1 or exact match.

    It is one of the doubts, as in the official script, tried in rising order. Where it is best to
    answer nothing it is 0, as there, or less, so that it is below every doubt.
    """
    order = np.argsort(evidence[:, 2], kind="stable")
    doubts = evidence[order, 2]
    gains = evidence[order, column] - (1 - evidence[order, 3])
    # silent on all at first; then one more is answered at each step
    totals = np.cumsum(gains)
    # equal doubts are answered together
    last = np.append(doubts[1:] != doubts[:-1], np.ones(min(1, len(doubts)), bool))
    totals, doubts = totals[last], doubts[last]
    if not len(totals) or totals.max() <= 0:
        below = np.nextafter(evidence[:, 2].min(initial=np.inf), -np.inf)
        return min(0.0, float(below))
    return float(doubts[int(totals.argmax())])
