"""The standard baseline of fine-tuning: TF-IDF and a linear model.

Its time and memory are estimated from characters, features and classes beforehand. If they are too
much it is reduced, in this order: one fold instead of three and fewer rows to choose the
regularisation strength; word unigrams and bigrams without character n-grams; fewer training rows.
If too little would be left it is not tried. On a busy machine all takes longer than estimated:
after twice the time no further strength is tried."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertsmith.core.log import progress
from bertsmith.core.printable import counted
from bertsmith.core.streams import Purpose, random_subset, stream
from bertsmith.recipes.finetune.baselines import (
    STRENGTHS,
    TFIDF,
    TFIDF_NUMBERS,
    BaselineScores,
    SkippedBaseline,
    StrengthSelection,
    chosen_strength,
    linear_answers,
    measured_baseline,
    row_groups,
    task_score,
)
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import Prepared
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.tagged import words_of

FORCE = "--baseline-seconds 0 tries it all the same"
# with fewer texts rare character n-grams are kept, as there are few others
_FEW_TEXTS = 1000
# measured on one core (docs/experiments/fine-tuning.md): seconds per character to count words with
# and without character n-grams; seconds per fit, non-zero value and class; non-zero values per
# character
_COUNTING = {"characters": 6e-6, "words": 2e-6}
_FITTING, _VALUES = 1e-6, {"characters": 3.0, "words": 0.4}
# of the solver: bytes per feature and class, with its ten stored updates
_BYTES, _MAX_BYTES = 24 * 8, 2e9
_MIN_FEATURES, _MIN_ROWS, _ROWS_A_CLASS = 2000, 500, 3


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of the linear model: what is counted, on how many rows, with which features."""

    characters: bool
    """True if character n-grams are counted besides words."""
    rows: int
    """Number of training rows."""
    features: float
    """Maximum number of features, the most frequent ones."""
    seconds: float
    """Seconds left for choosing the strength, with those of one fit subtracted."""


def plan(
    characters: int, rows: int, classes: int, seconds: float, *, dev_characters: int = 0
) -> Plan | str:
    """Plan what can be learned in some seconds from texts with a total of `characters`.

    The texts of dev are all counted. Returns the reason if nothing can be learned. Zero seconds
    mean no limit of time or memory.
    """
    if not seconds:
        return Plan(characters=True, rows=rows, features=math.inf, seconds=math.inf)
    features = _MAX_BYTES / (_BYTES * classes)
    words = f"{counted(rows, 'text')} of {characters / rows:,.0f} characters and "
    words += counted(classes, "class", "classes")
    for kind in ("characters", "words"):
        counting = _COUNTING[kind] * characters
        fitting = _FITTING * _VALUES[kind] * characters * classes
        of_dev = _COUNTING[kind] * dev_characters
        available = max(seconds / 2 - of_dev, 0.0)
        share = 1.0 if kind == "characters" else min(1.0, available / (counting + fitting))
        fits = counting + fitting <= available or share < 1
        kept_rows = int(share * rows)
        enough = kept_rows >= min(rows, max(_MIN_ROWS, _ROWS_A_CLASS * classes))
        if fits and enough and features >= _MIN_FEATURES:
            remaining = seconds - of_dev - share * (counting + fitting)
            return Plan(
                characters=kind == "characters",
                rows=kept_rows,
                features=features,
                seconds=remaining,
            )
    if features < _MIN_FEATURES:
        memory_needed = _BYTES * classes * _VALUES["words"] * characters / 10
        return f"{words} would take about {max(memory_needed, _MAX_BYTES) / 1e9:,.0f} GB of memory"
    return f"{words} would take about {counting + fitting + of_dev:,.0f} s"


def tfidf_baseline(
    prepared: Prepared, seconds: float = FinetuneSettings.baseline_seconds
) -> BaselineScores | SkippedBaseline | None:
    """Return a linear model on TF-IDF of word unigrams, bigrams and character 2- to 5-grams.

    It is strong on purpose: on the texts we tried, character n-grams gain up to two points over
    words. The texts of a pair are counted separately, and their similarity is a further feature. It
    takes about `seconds` at most, 0 for no limit. None for tasks that are not about whole texts.
    """
    data, task = prepared.data, prepared.task
    if not isinstance(data.train[0], Example):
        return None
    started = time.perf_counter()
    name = TFIDF_NUMBERS if task.head == "number" else TFIDF
    outputs = max(len(data.labels), 1)
    # for two classes one is learned
    learned = 1 if task.head == "class" and outputs == 2 else outputs
    characters = sum(task.reader.characters(row) for row in data.train)
    planned = plan(
        characters,
        len(data.train),
        learned,
        seconds,
        dev_characters=sum(task.reader.characters(row) for row in data.dev),
    )
    if isinstance(planned, str):
        return SkippedBaseline(name=name, reason=f"{planned}; {FORCE}")
    chosen = random_subset(len(data.train), planned.rows, stream(Purpose.TFIDF_ROWS))
    rows = [data.train[row] for row in chosen.tolist()]
    until = time.perf_counter() + 2 * seconds if seconds else math.inf
    try:
        with progress(name, None) as bar, _one_thread():
            bar.note("counting words")
            train_features, dev_features = _features(rows, data.dev, planned)
            truths = np.asarray(prepared.train.labels)[chosen]
            selection = replace(
                _strength_selection(train_features, learned, planned),
                until=until,
                score=task_score(prepared, chosen),
                groups=row_groups(prepared, chosen),
            )
            bar.note("fitting")
            strength, tried = chosen_strength(
                task.head, train_features, truths, outputs, selection=selection
            )
            answers, _ = linear_answers(
                task.head, train_features, truths, dev_features, outputs, (strength,)
            )
    except MemoryError:
        return SkippedBaseline(name=name, reason="not enough memory")
    detail = _detail(planned, strength, tried, len(data.train))
    return measured_baseline(name, prepared, answers, started, detail)


def _one_thread() -> AbstractContextManager[object]:
    """Limit the products of the solver to one thread.

    They are so small that several threads mostly wait for one another: for seconds a fit on a busy
    machine.
    """
    # limits only what is loaded
    import sklearn.linear_model  # noqa: F401
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    return threadpool_limits(1, user_api="blas")  # type: ignore[no-any-return]


def _strength_selection(features: Any, classes: int, planned: Plan) -> StrengthSelection:  # noqa: ANN401
    """Return the way to choose the strength in the remaining time."""
    if math.isinf(planned.seconds):
        return StrengthSelection()
    fit = _FITTING * features.nnz * classes
    fold = len(STRENGTHS) * 2 / 3 * fit
    if 3 * fold <= planned.seconds:
        return StrengthSelection()
    rows = int(min(1.0, planned.seconds / max(fold, 1e-9)) * features.shape[0])
    return StrengthSelection(folds=1, rows=max(rows, min(features.shape[0], _MIN_ROWS)))


def _detail(planned: Plan, strength: float, tried: int, rows: int) -> str:
    words = [f"regularisation 1/{strength:g}"]
    if tried < len(STRENGTHS):
        words.append(f"{tried} of {len(STRENGTHS)} strengths tried, to finish in time")
    if not planned.characters:
        words.append("word unigrams and bigrams only, to finish in time")
    if planned.rows < rows:
        words.append(f"from {planned.rows:,} of {rows:,} examples, to finish in time")
    return "; ".join(words)


def _features(train: Sequence[Example], dev: Sequence[Example], planned: Plan) -> tuple[Any, Any]:
    """Return sparse matrices (rows, features) of both parts, of the most frequent features."""
    train_features, dev_features = _count_features(train, dev, planned)
    if train_features.shape[1] > planned.features:
        frequency = np.argsort(-train_features.getnnz(axis=0), kind="stable")[
            : int(planned.features)
        ]
        columns = np.sort(frequency)
        return train_features[:, columns], dev_features[:, columns]
    return train_features, dev_features


def _count_features(
    train: Sequence[Example], dev: Sequence[Example], planned: Plan
) -> tuple[Any, Any]:
    from scipy.sparse import csr_matrix, hstack

    sides = [
        [[row.text for row in part], [row.text_pair or "" for row in part]] for part in (train, dev)
    ]
    if train[0].text_pair is None:
        union = _vectorizer(len(train), planned)
        return union.fit_transform(sides[0][0]).tocsr(), union.transform(sides[1][0]).tocsr()
    blocks: list[list[Any]] = [[], []]
    for side in range(2):
        union = _vectorizer(len(train), planned)
        blocks[0].append(union.fit_transform(sides[0][side]))
        blocks[1].append(union.transform(sides[1][side]))
    common = _vectorizer(len(train), planned).fit(sides[0][0] + sides[0][1])
    for block, part in zip(blocks, sides, strict=True):
        first, second = (common.transform(texts) for texts in part)
        block.append(csr_matrix(first.multiply(second).sum(1)))
    train_features, dev_features = (hstack(block).tocsr() for block in blocks)
    return train_features, dev_features


def _words(text: str) -> list[str]:
    return [text[start:end] for start, end in words_of(text)]


def _vectorizer(texts: int, planned: Plan) -> Any:  # noqa: ANN401
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import FeatureUnion

    words = TfidfVectorizer(
        ngram_range=(1, 2), tokenizer=_words, token_pattern=None, sublinear_tf=True
    )
    if not planned.characters:
        return FeatureUnion([("words", words)])
    characters = TfidfVectorizer(
        analyzer="char_wb",
        ngram_range=(2, 5),
        min_df=2 if texts > _FEW_TEXTS else 1,
        sublinear_tf=True,
    )
    return FeatureUnion([("words", words), ("characters", characters)])
