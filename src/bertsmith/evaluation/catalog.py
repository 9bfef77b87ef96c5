"""The scores of tasks, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from bertsmith.evaluation.correlation import pearson, spearman
from bertsmith.evaluation.metrics import accuracy, binary_f1, macro_f1, matthews, micro_f1
from bertsmith.evaluation.multi_label import exact_match, multi_label_f1

Score = Callable[[NDArray[Any], NDArray[Any]], float]
"""Takes what is true and what was predicted, a row an example; higher is better, 1 is the most."""

CLASS_SCORES: dict[str, Score] = {
    "accuracy": accuracy,
    "f1": binary_f1,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "matthews": matthews,
}
"""Of class numbers (examples,); ``f1`` is that of class 1."""

CLASSES_SCORES: dict[str, Score] = {"exact_match": exact_match, "multi_label_f1": multi_label_f1}
"""Of which labels apply, (examples, labels)."""

NUMBER_SCORES: dict[str, Score] = {"pearson": pearson, "spearman": spearman}
"""Of numbers (examples,)."""

METRICS = CLASS_SCORES | CLASSES_SCORES | NUMBER_SCORES
