"""When to abstain: the probability below which an answer is not given.

Selective classification (El-Yaniv and Wiener 2010; Geifman and El-Yaniv 2017): of the rows that are
answered, the coverage, a wanted share shall be right. Evidence is whether each answer is right and
its probability.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Right = NDArray[np.bool_]
Confidences = NDArray[np.float64]


def confidence_for(right: Right, confidences: Confidences, accuracy: float) -> float | None:
    """Return the least threshold at which that share of the answers given is right.

    It is one of the confidences, 0 where all may be answered; None where no threshold does.
    """
    order = np.argsort(-confidences, kind="stable")
    reached = np.cumsum(right[order]) / np.arange(1, len(right) + 1)
    # equal confidences are answered together
    ends = np.append(np.diff(confidences[order]) != 0, np.ones(min(1, len(right)), bool))
    good = np.flatnonzero(ends & (reached >= accuracy))
    if not len(good):
        return None
    last = int(good[-1])
    return 0.0 if last + 1 == len(right) else float(confidences[order[last]])


def abstention_note(right: Right, confidences: Confidences, threshold: float, unit: str) -> str:
    """Return what a threshold does to rows: how many are answered, how many of these are right."""
    given = confidences >= threshold
    if not given.any():
        return f"no answer has a probability of {threshold:.4f} or more: none is given"
    return (
        f"answers are given where the probability is at least {threshold:.4f}: to "
        f"{100 * given.mean():.2f} % of the {unit}, {100 * right[given].mean():.2f} % of them right"
    )
