"""What fine-tuning is measured against: TF-IDF and logistic regression."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.evaluation.metrics import accuracy, macro_f1
from bertsmith.log import progress

STRENGTHS = (1.0, 4.0, 16.0, 64.0, 256.0)
_FOLDS = 3
_WORDS = r"(?u)\b\w+\b|[^\w\s]"
# below this many texts rare character sequences are kept: there are few others
_FEW_TEXTS = 1000

Texts = Sequence[tuple[str, str | None]]


@dataclass(frozen=True, kw_only=True)
class BaselineResult:
    """Scores on the dev examples; `strength` is the inverse of the regularisation (C) chosen."""

    accuracy: float
    macro_f1: float
    predictions: NDArray[np.int64]
    strength: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return self.__dict__ | {"predictions": self.predictions.tolist()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BaselineResult:
        """What `to_dict` gave."""
        return cls(**data | {"predictions": np.array(data["predictions"], np.int64)})


def tfidf_baseline(
    train: Texts, labels: NDArray[np.int64], dev: Texts, dev_labels: NDArray[np.int64]
) -> BaselineResult:
    """Logistic regression over TF-IDF of words, pairs of words and 2 to 5 characters.

    Strong on purpose: on the texts we tried, characters are worth up to two points over words. C is
    chosen by threefold cross-validation on the training examples alone. The texts of a pair are
    counted apart.
    """
    from scipy.sparse import hstack

    began = time.perf_counter()
    with progress("TF-IDF + logistic regression", len(STRENGTHS) + 2) as bar:
        paired = train[0][1] is not None
        blocks = [_features(train, dev, side) for side in range(1 + paired)]
        known = hstack([block[0] for block in blocks]).tocsr()
        unknown = hstack([block[1] for block in blocks]).tocsr()
        bar.advance()
        scores = []
        for strength in STRENGTHS:
            scores.append(_cross_validated(known, labels, strength))
            bar.advance()
        strength = STRENGTHS[int(np.argmax(scores))]
        predictions = _fitted(known, labels, strength).predict(unknown).astype(np.int64)
    return BaselineResult(
        accuracy=accuracy(dev_labels, predictions),
        macro_f1=macro_f1(dev_labels, predictions),
        predictions=predictions,
        strength=strength,
        seconds=time.perf_counter() - began,
    )


def _features(train: Texts, dev: Texts, side: int) -> tuple[Any, Any]:
    """Sparse matrices (examples, features) of one side of the pairs."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import FeatureUnion

    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=_WORDS, sublinear_tf=True)
    characters = TfidfVectorizer(
        analyzer="char_wb",
        ngram_range=(2, 5),
        min_df=2 if len(train) > _FEW_TEXTS else 1,
        sublinear_tf=True,
    )
    union = FeatureUnion([("words", words), ("characters", characters)])
    known = union.fit_transform([str(texts[side]) for texts in train])
    return known, union.transform([str(texts[side]) for texts in dev])


def _fitted(features: Any, labels: NDArray[np.int64], strength: float) -> Any:  # noqa: ANN401
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=strength, max_iter=500).fit(features, labels)


def _cross_validated(features: Any, labels: NDArray[np.int64], strength: float) -> float:  # noqa: ANN401
    """Examples predicted right when each third is predicted from the other two."""
    # the members of each class are dealt out in turn, after a fixed shuffle
    order = np.random.default_rng(0).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), np.int64)
    fold[order] = np.arange(len(labels)) % _FOLDS
    right = 0
    for number in range(_FOLDS):
        kept, asked = fold != number, fold == number
        if len(np.unique(labels[kept])) > 1 and asked.any():
            model = _fitted(features[kept], labels[kept], strength)
            right += int(np.sum(model.predict(features[asked]) == labels[asked]))
    return float(right)
