"""The scores of a baseline, and the linear models that most baselines train."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.streams import Purpose, stream
from bertsmith.evaluation.metrics import mean_and_spread
from bertsmith.evaluation.significance import Clusters
from bertsmith.recipes.finetune.inputs import Prepared
from bertsmith.tasks.task import Evidence, Scores, score_answers

TF_IDF = "TF-IDF"
TFIDF = f"{TF_IDF} + logistic regression"
TFIDF_NUMBERS = f"{TF_IDF} + ridge regression"


@dataclass(frozen=True, kw_only=True)
class BaselineScores:
    """A baseline's scores on dev, one set per seed, and its training time in seconds.

    `simpler` is true if no network has to be trained; `detail` is a remark for the report;
    `evidences` are how correct it is on each row of dev, one per seed, or none where those are kept
    with the runs of the seeds; `shares` are the weights of the layers in a learned mix, the last of
    them the last layer's.
    """

    name: str
    scores: tuple[Scores, ...]
    seconds: float
    simpler: bool
    detail: str = ""
    evidences: tuple[Evidence, ...] = field(default=(), repr=False)
    shares: tuple[float, ...] = ()

    def values(self, name: str) -> list[float]:
        """Return a score of each seed."""
        return [scores[name] for scores in self.scores if name in scores]

    @property
    def mean(self) -> float:
        """Return the mean of the primary score."""
        return mean_and_spread([next(iter(scores.values())) for scores in self.scores])[0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the evidences."""
        values = self.__dict__ | {"scores": list(self.scores), "shares": list(self.shares)}
        del values["evidences"]
        if not self.shares:
            del values["shares"]
        return values

    def to_file(self) -> dict[str, Any]:
        """Return plain JSON values, with the evidences."""
        return self.to_dict() | {"evidences": [evidence.tolist() for evidence in self.evidences]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BaselineScores:
        """Return the baseline from the values of `to_file`."""
        evidences = tuple(np.array(item, np.float64) for item in data["evidences"])
        shares = tuple(data.get("shares", ()))
        return cls(
            **data | {"scores": tuple(data["scores"]), "evidences": evidences, "shares": shares}
        )


def measured_baseline(
    name: str,
    prepared: Prepared,
    answers: Sequence[Any],
    started: float,
    detail: str,
    shares: tuple[float, ...] = (),
) -> BaselineScores:
    """Return a simpler baseline, begun at a time of `perf_counter`, by its answers to dev rows."""
    data = prepared.data
    measured = score_answers(prepared.task, data.dev, answers, data.labels)
    return BaselineScores(
        name=name,
        scores=(measured.scores,),
        seconds=time.perf_counter() - started,
        simpler=True,
        detail=detail,
        evidences=(measured.evidence,),
        shares=shares,
    )


@dataclass(frozen=True, kw_only=True)
class SkippedBaseline:
    """A baseline that was not tried, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} was not tried: {self.reason}"


# pairs and numbers are learned best at the lower end, single texts at the upper one
STRENGTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0, 64.0, 256.0)
_FOLDS = 3

Truths = NDArray[Any]
Predictions = NDArray[np.float64]
RowScore = Callable[[Predictions, NDArray[np.int64]], float]
"""A score of predictions, (rows, ...), of the training rows with these numbers."""


@dataclass(frozen=True, kw_only=True)
class StrengthSelection:
    """The cross-validation that chooses the regularisation strength."""

    folds: int = _FOLDS
    """Number of the three folds that are predicted from the other two."""
    rows: int | None = None
    """Number of rows used, None for all."""
    until: float = math.inf
    """Time of `perf_counter` at which it ends, with the strengths tried by then."""
    score: RowScore | None = None
    """The score that is chosen by; None for what the linear models are fitted for, right classes
    or labels and small squared errors."""
    groups: NDArray[np.int64] | None = None
    """For each row the number of its group, which is whole in one fold, in the order of their first
    rows; None if each row is a group."""


def row_groups(prepared: Prepared, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the groups of the training rows, or of some of them, by which dev is cut too."""
    task, data = prepared.task, prepared.data
    examples = data.train if rows is None else [data.train[row] for row in rows.tolist()]
    return Clusters(task.cluster_keys(examples)).numbers


def task_score(prepared: Prepared, rows: NDArray[np.int64] | None = None) -> RowScore | None:
    """Return the score that a task counts most, over its training rows or some of them.

    Models of numbers are chosen by the squared error that they are fitted for: None.
    """
    task, data = prepared.task, prepared.data
    if task.head == "number":
        return None
    measuring, labels = task.measuring, data.labels
    examples = data.train if rows is None else [data.train[row] for row in rows.tolist()]

    def score(predictions: Predictions, numbers: NDArray[np.int64]) -> float:
        chosen = [examples[number] for number in numbers.tolist()]
        evidence = measuring.evidence(chosen, list(predictions), labels)
        return measuring.primary(labels, measuring.tune(evidence))[1](evidence)

    return score


def linear_answers(
    predicts: str,
    train: Any,  # noqa: ANN401
    truths: Truths,
    dev: Any,  # noqa: ANN401
    outputs: int,
    strengths: Sequence[float] = STRENGTHS,
    selection: StrengthSelection = StrengthSelection(),
) -> tuple[list[Any], float]:
    """Return answers for the rows of `dev`, learned from `train`, and the chosen strength.

    Features are matrices (rows, features), sparse or not. `truths` are class numbers (rows,) for
    "class", 0 or 1 (rows, outputs) for "classes", and numbers (rows,) for "number"; the answers are
    probabilities (outputs,), the same, and numbers. The regularisation strength (C of logistic
    regression, the inverse of ridge regression's alpha) is chosen by cross-validation on `train`
    alone, threefold unless `selection` says otherwise.
    """
    strength, _ = chosen_strength(predicts, train, truths, outputs, strengths, selection)
    return list(_FITS[predicts](train, truths, strength, outputs)(dev)), strength


def chosen_strength(
    predicts: str,
    train: Any,  # noqa: ANN401
    truths: Truths,
    outputs: int,
    strengths: Sequence[float] = STRENGTHS,
    selection: StrengthSelection = StrengthSelection(),
) -> tuple[float, int]:
    """Return the best strength for `linear_answers`, and how many were tried.

    The middle one is tried first, and the others by their distance from it, as long as there is
    time; it is also what is returned without any. Of equally good ones the first is best.
    """
    if len(strengths) == 1:
        return strengths[0], 1
    kinds = truths if predicts == "class" else np.zeros(len(truths), np.int64)
    groups = np.arange(len(truths)) if selection.groups is None else selection.groups
    fold = _folds(kinds, groups)
    rows = np.arange(len(truths))
    if selection.rows is not None and selection.rows < len(truths):
        random = np.random.default_rng(int(stream(Purpose.FOLD_ROWS)))
        rows = np.sort(random.permutation(len(truths))[: selection.rows])
    features, targets, fold = train[rows], truths[rows], fold[rows]
    fold[fold >= selection.folds] = -1
    middle = (len(strengths) - 1) // 2
    order = sorted(range(len(strengths)), key=lambda number: abs(number - middle))
    scores: list[float] = []
    longest = 0.0
    for strength in (strengths[number] for number in order):
        started = time.perf_counter()
        # the model is still to be trained after the next one
        if started + 2 * longest > selection.until:
            break
        fit = partial(_FITS[predicts], strength=strength, outputs=outputs)
        predictions, predicted = _cross_validated(fit, features, targets, fold)
        if selection.score is None:
            scores.append(_fitted_for(predicts, predictions, targets[predicted]))
        else:
            scores.append(selection.score(predictions, rows[predicted]) if len(predicted) else 0.0)
        longest = max(longest, time.perf_counter() - started)
    best = int(np.argmax(scores)) if scores else 0
    return strengths[order[best]], len(scores)


Predict = Callable[[Any], Predictions]


def _classes(features: Any, truths: Truths, strength: float, outputs: int) -> Predict:  # noqa: ANN401
    kinds = np.unique(truths)
    if len(kinds) == 1:
        return lambda matrix: np.tile(np.eye(outputs)[kinds], (matrix.shape[0], 1))
    model = _logistic(features, truths, strength)

    def probabilities(features: Any) -> NDArray[np.float64]:  # noqa: ANN401
        # classes absent from the training rows keep probability 0
        result = np.zeros((features.shape[0], outputs))
        result[:, model.classes_] = model.predict_proba(features)
        return result

    return probabilities


def _labels(features: Any, truths: Truths, strength: float, outputs: int) -> Predict:  # noqa: ANN401
    models = [
        _logistic(features, truths[:, number].astype(np.int64), strength)
        if len(np.unique(truths[:, number])) > 1
        else None
        for number in range(outputs)
    ]

    def probabilities(features: Any) -> NDArray[np.float64]:  # noqa: ANN401
        columns = [
            np.full(features.shape[0], float(truths[0, number]))
            if model is None
            else model.predict_proba(features)[:, 1]
            for number, model in enumerate(models)
        ]
        return np.stack(columns, 1)

    return probabilities


def _numbers(features: Any, truths: Truths, strength: float, outputs: int) -> Predict:  # noqa: ANN401
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=1 / strength).fit(features, truths)
    return lambda dev_features: np.asarray(model.predict(dev_features), np.float64)


_FITS = {"class": _classes, "classes": _labels, "number": _numbers}


def _logistic(features: Any, classes: Truths, strength: float) -> Any:  # noqa: ANN401
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=strength, max_iter=500).fit(features, classes)


def _folds(kinds: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the fold of each row, that of its group, stratified by kind, after a shuffle."""
    kinds = kinds[np.unique(groups, return_index=True)[1]]
    order = np.random.default_rng(int(stream(Purpose.FOLDS))).permutation(len(kinds))
    order = order[np.argsort(kinds[order], kind="stable")]
    fold = np.empty(len(kinds), np.int64)
    fold[order] = np.arange(len(kinds)) % _FOLDS
    return fold[groups]


def _cross_validated(
    fit: Callable[[Any, Truths], Predict],
    features: Any,  # noqa: ANN401
    truths: Truths,
    fold: NDArray[np.int64],
) -> tuple[Predictions, NDArray[np.int64]]:
    """Return predictions of the rows of each fold from those of the others, and these rows."""
    predictions, rows = [], []
    for fold_number in range(_FOLDS):
        train, test = fold != fold_number, fold == fold_number
        if train.any() and test.any():
            predictions.append(fit(features[train], truths[train])(features[test]))
            rows.append(np.flatnonzero(test))
    none = np.zeros(0)
    return np.concatenate(predictions or [none]), np.concatenate(rows or [none.astype(np.int64)])


def _fitted_for(predicts: str, predictions: Predictions, truths: Truths) -> float:
    """Return the number of right classes or labels, or the squared error below zero."""
    if not len(predictions):
        return 0.0
    if predicts == "class":
        return float(np.sum(predictions.argmax(1) == truths))
    if predicts == "classes":
        return float(np.sum((predictions > 0.5) == (truths > 0.5)))
    return -float(np.sum((predictions - truths) ** 2))
