"""One answer among several, such as a class or an option, by its probability.

It may be withheld where its probability is too low, or be given as a prediction set that holds the
right answer at a given rate. The evidence of such tasks has the true answer, the likeliest one, and
the latter's probability.

Sets are those of split conformal prediction with the LAC score, one minus the probability of the
right answer (Sadinle et al. 2019; Angelopoulos and Bates 2021, sections 1 and 2). The threshold of
a coverage c is the ceil((n + 1) c)-th largest of the probabilities that n calibration examples gave
their right answers; the set of a new example has every answer with at least that probability. Over
new examples from where those of the calibration came from, the right answer is in the set with a
probability of c at least, whatever the model is.
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
from bertsmith.tasks.task import UNTUNED, Evidence, Record, Right, Tuned

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
    """Return the effect of abstaining, if a confidence is required."""
    if tuned.min_confidence is None:
        return []
    right = right_choices(evidence, tuned)
    return [abstention_note(right, evidence[:, 2], tuned.min_confidence, unit)]


def confidence_for(right: Right, confidences: Confidences, accuracy: float) -> float | None:
    """Return the least threshold at which that share of the answers given is right.

    It lies midway between two confidences, so that rounding, which depends on processor and
    precision, changes no answer; 0 where all may be answered; None where no threshold does.
    """
    order = np.argsort(-confidences, kind="stable")
    reached = np.cumsum(right[order]) / np.arange(1, len(right) + 1)
    # equal confidences are answered together
    ends = np.append(np.diff(confidences[order]) != 0, np.ones(min(1, len(right)), bool))
    good = np.flatnonzero(ends & (reached >= accuracy))
    if not len(good):
        return None
    last = int(good[-1])
    if last + 1 == len(right):
        return 0.0
    return float(confidences[order[last : last + 2]].mean())


def abstention_note(right: Right, confidences: Confidences, threshold: float, unit: str) -> str:
    """Describe a threshold's effect: the shares of rows answered, and right among these."""
    answered = confidences >= threshold
    if not answered.any():
        return f"no answer has a probability of {threshold:.4f} or more: none is given"
    return (
        f"answers are given where the probability is at least {threshold:.4f}: to "
        f"{100 * answered.mean():.2f} % of the {unit}, {100 * right[answered].mean():.2f} % of "
        "them right"
    )


def record_keys(name: str, tuned: Tuned) -> tuple[str, ...]:
    """Return the keys of a record whose answer has the key `name`."""
    among = () if tuned.set_threshold is None else ("prediction_set",)
    return (name, "probability", *among, "probabilities")


def chosen_record(name: str, answer: Any, answers: Sequence[Any], tuned: Tuned) -> Record:  # noqa: ANN401
    """Return the likeliest of some `answers`, its probability, and the prediction set if asked.

    The answer, which has the key `name`, is None where its probability is too low.
    """
    best = int(answer.argmax())
    # numpy would round the threshold to float32, perhaps to a probability below it
    probability = float(answer[best])
    unsure = tuned.min_confidence is not None and probability < tuned.min_confidence
    record: Record = {
        name: None if unsure else answers[best],
        "probability": round(probability, 6),
    }
    if tuned.set_threshold is not None:
        among = prediction_set(answer, tuned.set_threshold)
        record["prediction_set"] = [answers[number] for number in among]
    return record


# prediction sets

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
    highest = conformal.coverages[-1]
    next_coverage = next(item for item in _COVERAGES if item >= coverage)
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
