"""What fine-tuning is always measured against: TF-IDF and a linear model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsmith.log import progress
from bertsmith.recipes.linear import linear_answers
from bertsmith.recipes.rivals import TFIDF, TFIDF_NUMBERS, Rival
from bertsmith.recipes.trial import Prepared
from bertsmith.text.examples import Example

_WORDS = r"(?u)\b\w+\b|[^\w\s]"
# below this many texts rare character sequences are kept: there are few others
_FEW_TEXTS = 1000


def tfidf_rival(prepared: Prepared) -> Rival | None:
    """A linear model over TF-IDF of words, pairs of words and 2 to 5 characters.

    Strong on purpose: on the texts we tried, characters are worth up to two points over words. The
    texts of a pair are counted apart, and how alike they are is told besides. None for tasks that
    are not about whole texts.
    """
    data, task = prepared.data, prepared.task
    if not isinstance(data.train[0], Example):
        return None
    began = time.perf_counter()
    name = TFIDF_NUMBERS if task.predicts == "number" else TFIDF
    with progress(name, None):
        known, asked = _features(data.train, data.dev)
        truths = np.asarray(prepared.train.labels)
        answers, strength = linear_answers(
            task.predicts, known, truths, asked, max(len(data.labels), 1)
        )
        evidence = task.evidence(data.dev, answers, data.labels)
    return Rival(
        name=name,
        scores=(task.scores(evidence, data.labels),),
        seconds=time.perf_counter() - began,
        simpler=True,
        detail=f"regularisation 1/{strength:g}",
    )


def _features(train: Sequence[Example], dev: Sequence[Example]) -> tuple[Any, Any]:
    """Sparse matrices (rows, features) of both parts."""
    from scipy.sparse import csr_matrix, hstack

    sides = [
        [[row.text for row in part], [row.text_pair or "" for row in part]] for part in (train, dev)
    ]
    if train[0].text_pair is None:
        union = _union(len(train))
        return union.fit_transform(sides[0][0]).tocsr(), union.transform(sides[1][0]).tocsr()
    blocks: list[list[Any]] = [[], []]
    for side in range(2):
        union = _union(len(train))
        blocks[0].append(union.fit_transform(sides[0][side]))
        blocks[1].append(union.transform(sides[1][side]))
    common = _union(len(train)).fit(sides[0][0] + sides[0][1])
    for block, part in zip(blocks, sides, strict=True):
        first, second = (common.transform(texts) for texts in part)
        block.append(csr_matrix(first.multiply(second).sum(1)))
    known, asked = (hstack(block).tocsr() for block in blocks)
    return known, asked


def _union(texts: int) -> Any:  # noqa: ANN401
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import FeatureUnion

    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=_WORDS, sublinear_tf=True)
    characters = TfidfVectorizer(
        analyzer="char_wb",
        ngram_range=(2, 5),
        min_df=2 if texts > _FEW_TEXTS else 1,
        sublinear_tf=True,
    )
    return FeatureUnion([("words", words), ("characters", characters)])
