"""What a model got wrong, and how sure it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.evaluation.calibration import calibration
from bertsmith.recipes.tasks.task import Task

# letters of a text that a table shows
_SHOWN = 240

Right = NDArray[np.bool_]
Confidence = NDArray[np.float64]


def calibration_points(confidence: Confidence, right: Right) -> list[tuple[float, float]]:
    """How often the model is right (y) where it is so sure (x), both means over a bin."""
    bins = calibration(confidence, right).bins
    return [(each.confidence, each.accuracy) for each in bins]


def calibration_note(confidence: Confidence, right: Right) -> str:
    """The expected calibration error in words."""
    error = calibration(confidence, right).error
    sure, share = float(confidence.mean()), float(right.mean())
    return (
        f"On average the model gives its answer a probability of {sure:.3f} and is right in "
        f"{share:.3f} of the cases; expected calibration error {error:.3f}."
    )


def mistakes(
    task: Task[Any],
    rows: Sequence[Any],
    answers: Sequence[dict[str, Any]],
    right: Right,
    most: int,
) -> list[tuple[str, str, str, str, str]]:
    """The wrong answers that the model was surest of.

    Each with its line, what was asked, the truth, the answer, and how sure the model was.
    """
    sure = [float(answer.get("probability", 0.0)) for answer in answers]
    wrong = sorted(np.flatnonzero(~right).tolist(), key=lambda row: -sure[row])[:most]
    return [
        (
            f"{rows[row].line}",
            _short(" | ".join(map(str, task.shown(rows[row]).values()))),
            _short(task.truth(rows[row])),
            _short(task.said(answers[row])),
            f"{sure[row]:.3f}",
        )
        for row in wrong
    ]


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
