"""Linear models on fixed features: of TF-IDF, static vectors and frozen layers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.streams import Purpose, stream

STRENGTHS = (1.0, 4.0, 16.0, 64.0, 256.0)
_FOLDS = 3


@dataclass(frozen=True, kw_only=True)
class Choosing:
    """The cross-validation that chooses the regularisation strength."""

    folds: int = _FOLDS
    """Number of the three folds that are predicted from the other two."""
    rows: int | None = None
    """Number of rows used, None for all."""


Truths = NDArray[Any]


def linear_answers(
    predicts: str,
    known: Any,  # noqa: ANN401
    truths: Truths,
    asked: Any,  # noqa: ANN401
    outputs: int,
    strengths: Sequence[float] = STRENGTHS,
    choosing: Choosing = Choosing(),
) -> tuple[list[Any], float]:
    """Return answers for the rows of `asked`, learned from `known`, and the chosen strength.

    Features are matrices (rows, features), sparse or not. `truths` are class numbers (rows,) for
    "class", 0 or 1 (rows, outputs) for "classes", and numbers (rows,) for "number"; the answers are
    probabilities (outputs,), the same, and numbers. The regularisation strength (C of logistic
    regression, the inverse of ridge regression's alpha) is chosen by cross-validation on `known`
    alone, threefold unless `choosing` says otherwise.
    """
    fit = {"class": _classes, "classes": _labels, "number": _numbers}[predicts]
    kinds = truths if predicts == "class" else np.zeros(len(truths), np.int64)
    fold = _folds(kinds)
    rows = np.arange(len(truths))
    if choosing.rows is not None and choosing.rows < len(truths):
        random = np.random.default_rng(int(stream(Purpose.FOLD_ROWS)))
        rows = np.sort(random.permutation(len(truths))[: choosing.rows])
    features, targets, fold = known[rows], truths[rows], fold[rows]
    fold[fold >= choosing.folds] = -1
    scores = [
        _cross_validated(fit, predicts, features, targets, fold, s, outputs) for s in strengths
    ]
    strength = strengths[int(np.argmax(scores))]
    return list(fit(known, truths, strength, outputs)(asked)), strength


Predict = Callable[[Any], NDArray[np.float64]]


def _classes(features: Any, truths: Truths, strength: float, outputs: int) -> Predict:  # noqa: ANN401
    kinds = np.unique(truths)
    if len(kinds) == 1:
        return lambda asked: np.tile(np.eye(outputs)[kinds], (asked.shape[0], 1))
    model = _logistic(features, truths, strength)

    def probabilities(asked: Any) -> NDArray[np.float64]:  # noqa: ANN401
        # classes absent from the training rows keep probability 0
        result = np.zeros((asked.shape[0], outputs))
        result[:, model.classes_] = model.predict_proba(asked)
        return result

    return probabilities


def _labels(features: Any, truths: Truths, strength: float, outputs: int) -> Predict:  # noqa: ANN401
    models = [
        _logistic(features, truths[:, number].astype(np.int64), strength)
        if len(np.unique(truths[:, number])) > 1
        else None
        for number in range(outputs)
    ]

    def probabilities(asked: Any) -> NDArray[np.float64]:  # noqa: ANN401
        columns = [
            np.full(asked.shape[0], float(truths[0, number]))
            if model is None
            else model.predict_proba(asked)[:, 1]
            for number, model in enumerate(models)
        ]
        return np.stack(columns, 1)

    return probabilities


def _numbers(features: Any, truths: Truths, strength: float, outputs: int) -> Predict:  # noqa: ANN401
    from sklearn.linear_model import Ridge

    del outputs
    model = Ridge(alpha=1 / strength).fit(features, truths)
    return lambda asked: np.asarray(model.predict(asked), np.float64)


def _logistic(features: Any, classes: Truths, strength: float) -> Any:  # noqa: ANN401
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=strength, max_iter=500).fit(features, classes)


def _folds(kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the fold of each row, stratified by kind, after a shuffle."""
    order = np.random.default_rng(int(stream(Purpose.FOLDS))).permutation(len(kinds))
    order = order[np.argsort(kinds[order], kind="stable")]
    fold = np.empty(len(kinds), np.int64)
    fold[order] = np.arange(len(kinds)) % _FOLDS
    return fold


def _cross_validated(
    fit: Callable[[Any, Truths, float, int], Predict],
    predicts: str,
    features: Any,  # noqa: ANN401
    truths: Truths,
    fold: NDArray[np.int64],
    strength: float,
    outputs: int,
) -> float:
    """Return the cross-validated score, summed over the rows."""
    good = 0.0
    for number in range(_FOLDS):
        kept, asked = fold != number, fold == number
        if not asked.any() or (predicts == "class" and len(np.unique(truths[kept])) < 2):
            continue
        predictions = fit(features[kept], truths[kept], strength, outputs)(features[asked])
        if predicts == "class":
            good += float(np.sum(predictions.argmax(1) == truths[asked]))
        elif predicts == "classes":
            good += float(np.sum((predictions > 0.5) == (truths[asked] > 0.5)))
        else:
            good -= float(np.sum((predictions - truths[asked]) ** 2))
    return good
