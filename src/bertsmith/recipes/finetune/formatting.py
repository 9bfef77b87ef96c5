"""Formatting of scores."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from bertsmith.evaluation.metrics import mean_and_spread

WORDS = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "mrr": "MRR",
    "map": "MAP",
    "ndcg": "nDCG",
    "exact_match": "exact match",
}


def score_label(name: str) -> str:
    """Return the display name of a score."""
    return WORDS.get(name, name.replace("_", " "))


def percent(value: float) -> str:
    """Return a score in per cent."""
    return f"{100 * value:.2f}"


def format_scores(scores: Mapping[str, float]) -> str:
    """Return scores in one line: ``accuracy 91.20 %, macro F1 90.87 %``."""
    return ", ".join(f"{score_label(name)} {percent(value)} %" for name, value in scores.items())


def format_mean(values: Sequence[float]) -> str:
    """Return mean and spread in per cent: ``91.20 ± 0.34``."""
    mean, spread = mean_and_spread(values)
    return percent(mean) + ("" if spread is None else f" ± {percent(spread)}")


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)
