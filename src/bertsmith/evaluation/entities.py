"""Precision, recall and F1 of entities, overall and by type, as in conlleval and seqeval.

An entity is correct when its type and both boundaries are (Tjong Kim Sang and De Meulder 2003).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

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
    for own, results in zip(true, predicted, strict=True):
        sides = set(own), set(results)
        for count, side in zip(counts, (*sides, sides[0] & sides[1]), strict=True):
            count.update(label for _, _, label in side)
    return {
        label: EntityScores(true=counts[0][label], found=counts[1][label], right=counts[2][label])
        for label in sorted(counts[0] | counts[1])
    }


def macro_f1(by_type: Mapping[str, EntityScores]) -> float:
    """Return the unweighted mean of the types' F1; 0 if there are none."""
    return sum(item.f1 for item in by_type.values()) / max(1, len(by_type))
