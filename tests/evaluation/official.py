"""Scores of whole files of answers by SQuAD's rules, from the script that transformers keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

referee = pytest.importorskip("transformers.data.metrics.squad_metrics")

Answers = Mapping[str, Sequence[str]]


def squad_v1(answers: Answers, said: Mapping[str, str]) -> dict[str, float]:
    """Exact match and F1 of SQuAD 1.1, in percent: each for its best reference answer."""
    exact, f1 = [], []
    for name, right in answers.items():
        exact.append(max(referee.compute_exact(item, said[name]) for item in right))
        # without any words on a side 1.1 counts 0, and 2.0 whether both have none
        scores = [
            referee.compute_f1(item, said[name]) if referee.normalize_answer(item) else 0.0
            for item in right
        ]
        f1.append(max(scores))
    return {"exact_match": float(100 * np.mean(exact)), "f1": float(100 * np.mean(f1))}


def squad_v2(
    answers: Answers,
    said: Mapping[str, str],
    doubts: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """The scores of SQuAD 2.0, by the script's names."""
    examples = [
        SimpleNamespace(qas_id=name, answers=[{"text": item} for item in right])
        for name, right in answers.items()
    ]
    return dict(referee.squad_evaluate(examples, said, doubts, threshold))
