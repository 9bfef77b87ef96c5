"""Whoever a fine-tuned model is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bertsmith.evaluation.metrics import mean_and_spread
from bertsmith.recipes.tasks.task import Scores

TFIDF = "TF-IDF + logistic regression"
TFIDF_NUMBERS = "TF-IDF + ridge regression"


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A contestant's scores on dev, one set of them a seed, and how long it took in all.

    `simpler` tells that it needs no network to be trained; `detail` is worth knowing of it.
    """

    name: str
    scores: tuple[Scores, ...]
    seconds: float
    simpler: bool
    detail: str = ""

    def values(self, name: str) -> list[float]:
        """A score, seed by seed."""
        return [each[name] for each in self.scores if name in each]

    @property
    def mean(self) -> float:
        """The mean of the score that counts most."""
        return mean_and_spread([next(iter(each.values())) for each in self.scores])[0]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return self.__dict__ | {"scores": list(self.scores)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Rival:
        """What `to_dict` gave."""
        return cls(**data | {"scores": tuple(data["scores"])})
