"""Answers chosen among several by their probability, and withheld where it is too low.

Evidence of such tasks has the true answer, the chosen one, and the latter's probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.tasks.task import UNTUNED, Evidence, Right, Tuned

Confidences = NDArray[np.float64]


def choice_evidence(true: NDArray[np.int64], answers: Sequence[Any]) -> Evidence:
    """Return the true and the likeliest answers, and the latter's probabilities, (rows, 3)."""
    chosen = [int(answer.argmax()) for answer in answers]
    confidences = [float(answer.max()) for answer in answers]
    return np.stack([true, chosen, confidences], 1).astype(np.float64)


def right_choices(evidence: Evidence, tuned: Tuned) -> Right:
    """Return the rows whose likeliest answer is the true one."""
    return evidence[:, 0] == evidence[:, 1]  # type: ignore[no-any-return]


def tune_confidence(evidence: Evidence, target_accuracy: float | None = None) -> Tuned:
    """Return the confidence that gives the accuracy wanted, where one is wanted."""
    if target_accuracy is None:
        return UNTUNED
    threshold = confidence_for(right_choices(evidence, UNTUNED), evidence[:, 2], target_accuracy)
    # where no threshold does, nothing but certainty is answered
    return Tuned(min_confidence=1.0 if threshold is None else threshold)


def confidence_notes(unit: str, evidence: Evidence, tuned: Tuned) -> list[str]:
    """Return the effect of abstaining, if a confidence is asked for."""
    if tuned.min_confidence is None:
        return []
    right = right_choices(evidence, tuned)
    return [abstention_note(right, evidence[:, 2], tuned.min_confidence, unit)]


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
