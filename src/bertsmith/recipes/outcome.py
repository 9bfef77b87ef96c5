"""What a fine-tuning came to, all seeds of it, and what to make of that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.evaluation.metrics import mean_and_spread
from bertsmith.recipes.baselines import BaselineResult
from bertsmith.recipes.labelled import LabelledData
from bertsmith.recipes.seeds import SeedResult

BASELINE = "TF-IDF + logistic regression"
HEADER = ("", "accuracy %", "macro F1 %", "seconds")


@dataclass(frozen=True, kw_only=True)
class FinetuneOutcome:
    """What a fine-tuning came to, every seed of it; `model` is the folder of the best on dev.

    `majority` is the accuracy of always saying the class that is commonest in train.
    """

    folder: Path
    model: Path
    data: LabelledData
    seeds: tuple[SeedResult, ...]
    baseline: BaselineResult | None
    majority: float
    cut: int

    @property
    def best(self) -> SeedResult:
        """The best seed on dev."""
        return max(self.seeds, key=lambda seed: seed.rank)

    @property
    def accuracy(self) -> tuple[float, float | None]:
        """Mean and spread (sample standard deviation) over the seeds."""
        return mean_and_spread([seed.accuracy for seed in self.seeds])

    @property
    def macro_f1(self) -> tuple[float, float | None]:
        """Mean and spread (sample standard deviation) over the seeds."""
        return mean_and_spread([seed.macro_f1 for seed in self.seeds])

    @property
    def degenerate(self) -> int:
        """Seeds that predict one class throughout."""
        return sum(seed.degenerate for seed in self.seeds)

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain JSON values."""
        accuracy, macro_f1 = self.accuracy, self.macro_f1
        figures: dict[str, Any] = {
            "accuracy": {"mean": accuracy[0], "spread": accuracy[1]},
            "macro_f1": {"mean": macro_f1[0], "spread": macro_f1[1]},
            "degenerate": self.degenerate,
            "seeds": [
                {
                    "seed": seed.seed,
                    "accuracy": seed.accuracy,
                    "macro_f1": seed.macro_f1,
                    "degenerate": seed.degenerate,
                    "seconds": seed.seconds,
                    "tokens": seed.tokens,
                }
                for seed in self.seeds
            ],
            "best_seed": self.best.seed,
            "majority": self.majority,
            "baseline": None,
            "labels": list(self.data.labels),
            "train": len(self.data.train),
            "dev": len(self.data.dev),
            "dev_is_cut": self.data.dev_is_cut,
            "cut": self.cut,
        }
        if self.baseline is not None:
            figures["baseline"] = {"name": BASELINE} | self.baseline.to_dict()
            del figures["baseline"]["predictions"]
        return figures

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The table of scores: every seed, mean and spread, and what they are measured against."""
        rows = [
            (
                f"seed {seed.seed}" + (" (one class only)" if seed.degenerate else ""),
                f"{100 * seed.accuracy:.2f}",
                f"{100 * seed.macro_f1:.2f}",
                f"{seed.seconds:.1f}",
            )
            for seed in self.seeds
        ]
        if len(self.seeds) > 1:
            seconds = mean_and_spread([seed.seconds for seed in self.seeds])[0]
            name = f"mean ± spread of {len(self.seeds)}"
            rows.append((name, told(self.accuracy), told(self.macro_f1), f"{seconds:.1f}"))
        if (other := self.baseline) is not None:
            scores = (f"{100 * other.accuracy:.2f}", f"{100 * other.macro_f1:.2f}")
            rows.append((BASELINE, *scores, f"{other.seconds:.1f}"))
        rows.append(("always the commonest class", f"{100 * self.majority:.2f}", "", ""))
        return rows

    def verdict(self) -> str:
        """Who wins on dev, and whether that says anything."""
        mean, spread = self.accuracy
        rival, name = self.majority, "always saying the commonest class"
        if self.baseline is not None and self.baseline.accuracy >= self.majority:
            rival, name = self.baseline.accuracy, BASELINE
        points = 100 * abs(mean - rival)
        if points <= max(100 * (spread or 0.0), 0.005):
            among = "" if spread is None else f", the seeds among themselves by {100 * spread:.2f}"
            return (
                f"no winner: {100 * mean:.2f} against {100 * rival:.2f} of {name} differ by "
                f"{points:.2f} points{among}"
            )
        if spread is None:
            caution = "; one seed says nothing of the spread, --seeds 5 does"
        else:
            caution = f" (spread of the seeds: {100 * spread:.2f})"
        if mean > rival:
            return f"the model wins by {points:.2f} points over {name}{caution}"
        return f"{name} wins by {points:.2f} points, and is simpler{caution}"

    def choice(self) -> str:
        """How the model that is kept was chosen."""
        if len(self.seeds) == 1:
            return f"{self.model} holds the model of seed {self.best.seed}"
        return (
            f"{self.model} holds the model of seed {self.best.seed}, the best of {len(self.seeds)} "
            f"on dev: expect the mean on new texts, not its {100 * self.best.accuracy:.2f} %"
        )


def told(figure: tuple[float, float | None]) -> str:
    """Mean and spread in percent: ``91.20 ± 0.34``."""
    mean, spread = figure
    return f"{100 * mean:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")


def majority_accuracy(data: LabelledData) -> float:
    """The accuracy on dev of always saying the class that is commonest in train."""
    commonest = int(np.bincount(data.classes(data.train)).argmax())
    return float(np.mean(data.classes(data.dev) == commonest))
