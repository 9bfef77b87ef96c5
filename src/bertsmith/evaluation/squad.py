"""SQuAD's exact match and F1, of 1.1 and 2.0, equal to the official scripts.

Answers are compared without case, punctuation, articles and white space (Rajpurkar et al. 2016,
section 6.1). All scores are in percent, as the scripts print them.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

Answers = Mapping[str, Sequence[str]]
"""The right answers of each question, by its id."""


@lru_cache(maxsize=1 << 16)
def normalise(text: str) -> str:
    """The text in lower case without punctuation and articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(right: str, said: str) -> float:
    """1 where both are the same once normalised, else 0."""
    return float(normalise(right) == normalise(said))


def token_f1(right: str, said: str) -> float:
    """F1 of the words that both have; without any words on a side, 1 where both have none."""
    ours, theirs = normalise(said).split(), normalise(right).split()
    if not ours or not theirs:
        return float(ours == theirs)
    common = (Counter(ours) & Counter(theirs)).total()
    return 2 * common / (len(ours) + len(theirs))


def score_v1(right: Sequence[str], said: str) -> tuple[float, float]:
    """Exact match and F1 of an answer in SQuAD 1.1, each by the right answer that it fits best.

    F1 is 0 where a side has no words.
    """
    return (
        max((exact_match(each, said) for each in right), default=0.0),
        max((token_f1(each, said) for each in right if normalise(each)), default=0.0),
    )


def score_v2(right: Sequence[str], said: str) -> tuple[float, float]:
    """The same in SQuAD 2.0: right answers without words do not count, and to say nothing is right
    where none is left.
    """
    meant = [each for each in right if normalise(each)] or [""]
    exact = max(exact_match(each, said) for each in meant)
    return exact, max(token_f1(each, said) for each in meant)


def squad_v1(answers: Answers, said: Mapping[str, str]) -> dict[str, float]:
    """``exact_match`` and ``f1`` of SQuAD 1.1; a question without a prediction counts 0."""
    assert answers
    scores = [score_v1(right, said[name]) for name, right in answers.items() if name in said]
    return {
        "exact_match": 100 * math.fsum(exact for exact, _ in scores) / len(answers),
        "f1": 100 * math.fsum(f1 for _, f1 in scores) / len(answers),
    }


def squad_v2(
    answers: Answers,
    said: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """The figures of SQuAD 2.0's script, by its names.

    Questions without answers are impossible; to say the empty string is to say so. Where
    `no_answer`, a probability or any other figure that grows with it, is over the threshold,
    nothing counts as said. Then ``best_exact`` and ``best_f1`` are what the best thresholds would
    give, ``best_exact_thresh`` and ``best_f1_thresh`` those thresholds, as the script finds them:
    where questions share a figure, it may name a score that no threshold reaches. Questions without
    a prediction are left out.
    """
    names = [name for name in answers if name in said]
    assert names
    possible = {name: bool(right) for name, right in answers.items()}
    both = {name: score_v2(answers[name], said[name]) for name in names}
    exact = {name: scores[0] for name, scores in both.items()}
    f1 = {name: scores[1] for name, scores in both.items()}
    doubts = dict.fromkeys(said, 0.0) if no_answer is None else no_answer
    figures: dict[str, float] = {}
    applied = [_applied(scores, doubts, possible, threshold) for scores in (exact, f1)]
    groups = (
        ("", names),
        ("HasAns_", [name for name in names if possible[name]]),
        ("NoAns_", [name for name in names if not possible[name]]),
    )
    for prefix, group in groups:
        if group:
            for key, scores in zip(("exact", "f1"), applied, strict=True):
                total = math.fsum(scores[name] for name in group)
                figures[f"{prefix}{key}"] = 100 * total / len(group)
            figures[f"{prefix}total"] = len(group)
    if no_answer is not None:
        for key, scores in (("exact", exact), ("f1", f1)):
            best, at = _best_threshold(scores, said, doubts, possible)
            figures |= {f"best_{key}": best, f"best_{key}_thresh": at}
    return figures


def _applied(
    scores: Mapping[str, float],
    doubts: Mapping[str, float],
    possible: Mapping[str, bool],
    threshold: float,
) -> dict[str, float]:
    """The scores with nothing said where the doubt is over the threshold."""
    return {
        name: float(not possible[name]) if doubts[name] > threshold else score
        for name, score in scores.items()
    }


def _best_threshold(
    scores: Mapping[str, float],
    said: Mapping[str, str],
    doubts: Mapping[str, float],
    possible: Mapping[str, bool],
) -> tuple[float, float]:
    """The best mean score in percent and its threshold, from answering nothing upwards."""
    now = best = float(sum(not each for each in possible.values()))
    threshold = 0.0
    for name in sorted((name for name in doubts if name in scores), key=doubts.__getitem__):
        now += scores[name] if possible[name] else -float(bool(said[name]))
        if now > best:
            best, threshold = now, doubts[name]
    return 100 * best / len(scores), threshold
