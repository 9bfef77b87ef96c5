"""Losses and accuracies of objectives on text that was not trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from torch import Tensor

from bertsmith.batches.batch import Batch
from bertsmith.evaluation.forward_only import Precision, forward_only
from bertsmith.models.model import Model


class Part(Protocol):
    """One objective's loss over a batch: summed, and how many of `count` targets were right."""

    @property
    def sum(self) -> Tensor:
        """The loss summed over the targets."""
        ...

    @property
    def count(self) -> int:
        """Number of targets."""
        ...

    @property
    def correct(self) -> Tensor:
        """Targets predicted right."""
        ...


class Parts(Protocol):
    """What an objective returns: a `Part` by the name of its target."""

    @property
    def parts(self) -> Mapping[str, Part]:
        """The parts by name."""
        ...


def evaluate_objective(
    model: Model,
    objective: Callable[[Model, Batch], Parts],
    batches: Iterable[Batch],
    *,
    precision: Precision = "fp32",
) -> dict[str, float]:
    """Means over all targets of all batches: ``NAME_loss``, ``NAME_accuracy``, ``NAME_count``.

    Names are those of the log of training. A part without any target is left out.
    """
    sums: dict[str, float] = {}
    correct: dict[str, int] = {}
    counts: dict[str, int] = {}
    with forward_only(model, precision):
        for batch in batches:
            for name, part in objective(model, batch.to(model.device)).parts.items():
                sums[name] = sums.get(name, 0.0) + part.sum.item()
                correct[name] = correct.get(name, 0) + int(part.correct.item())
                counts[name] = counts.get(name, 0) + part.count
    figures: dict[str, float] = {}
    for name, count in counts.items():
        if count:
            figures[f"{name}_loss"] = sums[name] / count
            figures[f"{name}_accuracy"] = correct[name] / count
            figures[f"{name}_count"] = count
    return figures
