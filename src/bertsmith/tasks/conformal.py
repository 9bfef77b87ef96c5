"""Prediction sets of classes or options that hold the right one at a given rate.

Split conformal prediction with the LAC score, one minus the probability of the right answer
(Sadinle et al. 2019; Angelopoulos and Bates 2021, sections 1 and 2). The threshold of a coverage c
is the ceil((n + 1) c)-th largest of the probabilities that n calibration examples gave their right
answers; the set of a new example has every answer with at least that probability. Over new examples
from where those of the calibration came from, the right answer is in the set with a probability of
c at least, whatever the model is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.errors import ConfigError
from bertsmith.core.printable import counted
from bertsmith.network.config import Conformal
from bertsmith.tasks.task import Evidence

_COVERAGES = (*(percent / 100 for percent in range(50, 100)), 0.995, 0.999)
_DIGITS = 6


def calibrate(evidence: Evidence, answers: Sequence[Any]) -> Conformal | None:
    """Return the thresholds of rows, whose evidence begins with the right answer; None for few.

    `answers` are the probabilities of the classes or options of each row.
    """
    true = evidence[:, 0].astype(np.int64)
    right = [float(answer[label]) for answer, label in zip(answers, true, strict=True)]
    return conformal_of(np.array(right, np.float64))


def conformal_of(right: NDArray[np.float64]) -> Conformal | None:
    """Return the thresholds for the probabilities of right answers.

    None where there are too few, or one is no number, as of a training that has failed.

    They are rounded downwards, so that rounding never shortens a set.
    """
    examples = len(right)
    # in whole tenths of a percent: 0.57 * 100 is more than 57
    ranks = [-(-(examples + 1) * round(1000 * coverage) // 1000) for coverage in _COVERAGES]
    coverages = [item for item, rank in zip(_COVERAGES, ranks, strict=True) if rank <= examples]
    if not coverages or np.isnan(right).any():
        return None
    largest, scale = np.sort(right)[::-1], 10**_DIGITS
    values = [math.floor(scale * largest[rank - 1]) / scale for rank in ranks[: len(coverages)]]
    return Conformal(
        examples=examples,
        coverages=tuple(coverages),
        thresholds=tuple(min(max(value, 0.0), 1.0) for value in values),
    )


def set_threshold(conformal: Conformal | None, coverage: float) -> float:
    """Return the least probability of an answer in sets of a coverage, or of the next one kept.

    Raises `ConfigError` for a model that was not calibrated, or on too few examples.
    """
    if conformal is None:
        raise ConfigError(
            "--conformal needs a model that was calibrated on dev, and this one was not",
            remedy="fine-tune it with bertsmith finetune, which calibrates where dev has examples",
        )
    for item, threshold in zip(conformal.coverages, conformal.thresholds, strict=True):
        if item >= coverage - 1e-9:
            return threshold
    highest, next_coverage = (
        conformal.coverages[-1],
        next(item for item in _COVERAGES if item >= coverage),
    )
    tenths = round(1000 * next_coverage)
    raise ConfigError(
        f"--conformal is {coverage:g}, and the model was calibrated on "
        f"{counted(conformal.examples, 'dev example')}, which are too few for more than "
        f"{highest:g}",
        remedy=f"ask for less, or fine-tune with {-(-tenths // (1000 - tenths)):,} on dev",
    )


def prediction_set(answer: NDArray[np.floating[Any]], threshold: float) -> list[int]:
    """Return the numbers of the classes or options in the set, the likeliest first; maybe none."""
    order = np.argsort(-answer, kind="stable")
    return [int(number) for number in order if answer[number] >= threshold]


class SetFigures(NamedTuple):
    """The sets of labelled rows: how many hold the right answer, and how large they are."""

    covered: float
    mean_size: float
    single: float
    empty: float

    def sentence(self, unit: str) -> str:
        """Return the figures in words."""
        return (
            f"the set holds the right answer for {100 * self.covered:.2f} % of the {unit}, and "
            f"{self.mean_size:.2f} answers on average: one alone for {100 * self.single:.2f} %, "
            f"none for {100 * self.empty:.2f} %"
        )


def set_figures(evidence: Evidence, answers: Sequence[Any], threshold: float) -> SetFigures:
    """Return the coverage and the sizes of the sets of labelled rows."""
    true = evidence[:, 0].astype(np.int64)
    sizes = np.array([int((answer >= threshold).sum()) for answer in answers])
    held = [answer[label] >= threshold for answer, label in zip(answers, true, strict=True)]
    return SetFigures(
        covered=float(np.mean(held)),
        mean_size=float(sizes.mean()),
        single=float((sizes == 1).mean()),
        empty=float((sizes == 0).mean()),
    )
