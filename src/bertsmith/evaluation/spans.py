"""Exact match and F1 of spans: answers as in SQuAD, entities as in conlleval and seqeval.

Answers are compared ignoring case, punctuation, articles and white space (Rajpurkar et al. 2016,
section 6.1); their scores are in percent, as the official scripts print them. An entity is correct
when its type and both boundaries are (Tjong Kim Sang and De Meulder 2003)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@lru_cache(maxsize=1 << 16)
def normalise(text: str) -> str:
    """Return the text in lower case, without punctuation and articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(right: str, prediction: str) -> float:
    """Return 1 if both are equal after normalisation, else 0."""
    return float(normalise(right) == normalise(prediction))


def token_f1(right: str, prediction: str) -> float:
    """Return the F1 of the common words; if a side has no words, 1 if neither has, else 0."""
    predicted, expected = normalise(prediction).split(), normalise(right).split()
    if not predicted or not expected:
        return float(predicted == expected)
    common = (Counter(predicted) & Counter(expected)).total()
    return 2 * common / (len(predicted) + len(expected))


def score_v1(right: Sequence[str], prediction: str) -> tuple[float, float]:
    """Return exact match and F1 of an answer in SQuAD 1.1, each for its best reference answer.

    F1 is 0 if a side has no words.
    """
    return (
        max((exact_match(answer, prediction) for answer in right), default=0.0),
        max((token_f1(answer, prediction) for answer in right if normalise(answer)), default=0.0),
    )


def score_v2(right: Sequence[str], prediction: str) -> tuple[float, float]:
    """Return exact match and F1 of an answer in SQuAD 2.0.

    Reference answers without words do not count; if none is left, the empty answer is correct.
    """
    answers = [answer for answer in right if normalise(answer)] or [""]
    exact = max(exact_match(answer, prediction) for answer in answers)
    return exact, max(token_f1(answer, prediction) for answer in answers)


Entities = Collection[tuple[int, int, str]]
"""The entities of one text: start, end and type, in words or in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityScores:
    """Counts of entities and the scores derived from them (micro-averages over types)."""

    true: int
    """Number of true entities, the support."""
    found: int
    """Number of predicted entities."""
    right: int
    """Number of predicted entities that are among the true ones."""

    @property
    def precision(self) -> float:
        """Share of the predicted entities that are correct; 0 if there are none."""
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """Share of the true entities that were predicted; 0 if there are none."""
        return self.right / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if no prediction is correct."""
        return 2 * self.right / (self.true + self.found) if self.right else 0.0


def score_entities(true: Sequence[Entities], predicted: Sequence[Entities]) -> EntityScores:
    """Return the scores of the predicted entities of some texts, over all types."""
    scores = scores_by_type(true, predicted).values()
    return EntityScores(
        true=sum(item.true for item in scores),
        found=sum(item.found for item in scores),
        right=sum(item.right for item in scores),
    )


def scores_by_type(
    true: Sequence[Entities], predicted: Sequence[Entities]
) -> dict[str, EntityScores]:
    """Return the scores of each type among the true or predicted entities, sorted by name."""
    counts = Counter[str](), Counter[str](), Counter[str]()
    for true_entities, results in zip(true, predicted, strict=True):
        sides = set(true_entities), set(results)
        for count, side in zip(counts, (*sides, sides[0] & sides[1]), strict=True):
            count.update(label for _, _, label in side)
    return {
        label: EntityScores(true=counts[0][label], found=counts[1][label], right=counts[2][label])
        for label in sorted(counts[0] | counts[1])
    }


def macro_f1(by_type: Mapping[str, EntityScores]) -> float:
    """Return the unweighted mean of the types' F1; 0 if there are none."""
    return sum(item.f1 for item in by_type.values()) / max(1, len(by_type))
