"""Whoever a fine-tuned model is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bertsmith.evaluation.metrics import mean_and_spread
from bertsmith.recipes.tasks.task import Evidence, Scores

TF_IDF = "TF-IDF"
TFIDF = f"{TF_IDF} + logistic regression"
TFIDF_NUMBERS = f"{TF_IDF} + ridge regression"


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A contestant's scores on dev, one set of them a seed, and how long it took in all.

    `simpler` tells that it needs no network to be trained; `detail` is worth knowing of it;
    `evidence` tells how right it is on each row of dev, where there is one set of scores.
    """

    name: str
    scores: tuple[Scores, ...]
    seconds: float
    simpler: bool
    detail: str = ""
    evidence: Evidence | None = None

    def values(self, name: str) -> list[float]:
        """A score, seed by seed."""
        return [each[name] for each in self.scores if name in each]

    @property
    def mean(self) -> float:
        """The mean of the score that counts most."""
        return mean_and_spread([next(iter(each.values())) for each in self.scores])[0]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, without the evidence."""
        values = self.__dict__ | {"scores": list(self.scores)}
        del values["evidence"]
        return values

    def to_file(self) -> dict[str, Any]:
        """As plain JSON values, with the evidence."""
        kept = None if self.evidence is None else self.evidence.tolist()
        return self.to_dict() | {"evidence": kept}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Rival:
        """What `to_file` gave."""
        found = data.get("evidence")
        evidence = None if found is None else np.array(found, np.float64)
        return cls(**data | {"scores": tuple(data["scores"]), "evidence": evidence})


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A contestant that was not tried, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} was not tried: {self.reason}"
