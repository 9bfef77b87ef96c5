"""The outcome of a fine-tuning run, all seeds of it, and the conclusions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.evaluation.metrics import mean_and_spread
from bertsmith.evaluation.significance import Interval
from bertsmith.recipes.finetune.baselines.rivals import TF_IDF, Difference, Rival
from bertsmith.recipes.finetune.formatting import format_mean, median, percent, score_label
from bertsmith.recipes.finetune.grid import Searched
from bertsmith.recipes.finetune.labelled import LabelledData
from bertsmith.recipes.finetune.trial import TrialResult

# share of cut texts above which it is mentioned
_MENTIONED = 0.05


def best_of(
    rivals: Sequence[Rival], majority_baseline: tuple[str, float] | None
) -> tuple[str, float, bool] | None:
    """Return name and mean score of the best baseline, and whether it is simpler; or None."""
    ranked = [(rival.name, rival.mean, rival.simpler) for rival in rivals]
    if majority_baseline is not None:
        # last, so that of equal scores a trained baseline comes first
        ranked.append((*majority_baseline, True))
    return max(ranked, key=lambda rival: rival[1], default=None)


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The results of some seeds with a number of training rows."""

    rows: int
    results: tuple[TrialResult, ...]

    @property
    def values(self) -> list[float]:
        """Return the primary score of each seed."""
        return [result.score for result in self.results]


@dataclass(frozen=True, kw_only=True)
class FinetuneOutcome:
    """The outcome of a fine-tuning run; `model` is the folder of the best seed on dev.

    `majority_baseline` has a name and a score; `interval` is the bootstrap interval of the best
    seed's score over dev sets, and `notes` are remarks on it; `difference` is that to the best
    baseline, None without any; `long` counts the rows over the limit of `longest` tokens and `cut`
    those of them that were truncated.
    """

    folder: Path
    model: Path
    data: LabelledData[Any]
    seeds: tuple[TrialResult, ...]
    interval: Interval
    notes: tuple[str, ...]
    rivals: tuple[Rival, ...]
    difference: Difference | None
    majority_baseline: tuple[str, float] | None
    grid: Searched | None
    curve: tuple[CurvePoint, ...]
    long: int
    cut: int
    longest: int

    @property
    def best(self) -> TrialResult:
        """Return the best seed on dev."""
        return max(self.seeds, key=lambda seed: seed.rank)

    @property
    def names(self) -> list[str]:
        """Return the names of the scores, the primary one first."""
        return list(self.seeds[0].scores)

    def values(self, name: str) -> list[float]:
        """Return a score of each seed."""
        return [seed.scores[name] for seed in self.seeds]

    @property
    def constant(self) -> int:
        """Return the number of degenerate seeds, which predict the same for every row."""
        return sum(seed.constant for seed in self.seeds)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        figures: dict[str, Any] = {"task": self.data.task.name, "scores": {}}
        for name in self.names:
            mean, spread = mean_and_spread(self.values(name))
            middle = median(self.values(name))
            figures["scores"][name] = {"mean": mean, "spread": spread, "median": middle}
        return figures | {
            "degenerate": self.constant,
            "seeds": [_without_losses(seed) for seed in self.seeds],
            "best_seed": self.best.seed,
            "best_interval": [self.interval.low, self.interval.high],
            "notes": list(self.notes),
            "floor": None if self.majority_baseline is None else dict([self.majority_baseline]),
            "rivals": [rival.to_dict() for rival in self.rivals],
            "difference": None if self.difference is None else self.difference.__dict__,
            "grid": None if self.grid is None else [cell.to_dict() for cell in self.grid.cells],
            "curve": [{"rows": point.rows, "scores": point.values} for point in self.curve],
            "labels": list(self.data.labels),
            "train": len(self.data.train),
            "dev": len(self.data.dev),
            "dev_is_cut": self.data.dev_is_cut,
            "long": self.long,
            "cut": self.cut,
        }

    def header(self) -> tuple[str, ...]:
        """Return the header of the table of scores."""
        return ("", *(f"{score_label(name)} %" for name in self.names), "seconds")

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table of scores: every seed, mean and spread, and the baselines."""
        rows = []
        for seed in self.seeds:
            name = f"seed {seed.seed}" + (" (predicts the same for every row)" * seed.constant)
            rows.append((name, *map(percent, seed.scores.values()), f"{seed.seconds:.1f}"))
        if (count := len(self.seeds)) > 1:
            seconds = mean_and_spread([seed.seconds for seed in self.seeds])[0]
            columns = [self.values(name) for name in self.names]
            rows.append((f"mean ± spread of {count}", *map(format_mean, columns), f"{seconds:.1f}"))
            rows.append((f"median of {count}", *(percent(median(of)) for of in columns), ""))
        for rival in self.rivals:
            columns = [rival.values(name) for name in self.names]
            seconds = rival.seconds
            rows.append(
                (rival.name, *(format_mean(of) if of else "" for of in columns), f"{seconds:.1f}")
            )
        if self.majority_baseline is not None:
            name, value = self.majority_baseline
            rows.append((name, percent(value), *[""] * len(self.names)))
        return rows

    @property
    def best_rival(self) -> tuple[str, float, bool] | None:
        """Return name and mean score of the best baseline, and whether it is simpler."""
        return best_of(self.rivals, self.majority_baseline)

    def verdict(self) -> str:
        """Return a sentence on what wins on dev, and whether that is significant."""
        if self.best_rival is None or self.difference is None:
            return "there is no baseline to compare it with"
        mean, spread = mean_and_spread(self.values(self.names[0]))
        name, best, simpler = self.best_rival
        points, apart = 100 * abs(mean - best), self.difference
        luck = f"95 % over dev sets of this size: {apart.interval(of_other=mean < best)}"
        if spread is not None:
            luck += f"; spread of the seeds: {percent(spread)}"
        if not apart.certain or points <= max(100 * (spread or 0.0), 0.005):
            verdict = (
                f"no winner: {percent(mean)} against {percent(best)} of {name}, and "
                f"{points:.2f} points may well be luck ({luck})"
            )
        elif mean > best:
            verdict = f"the model wins by {points:.2f} points over {name} ({luck})"
        else:
            verdict = f"{name} wins by {points:.2f} points{', and is simpler' * simpler} ({luck})"
        if spread is None:
            verdict += "; one seed gives no spread: use --seeds 5"
        return verdict + self._read_less()

    def _read_less(self) -> str:
        """Return a note if the model read less of the texts than the bag of words, else ""."""
        texts = len(self.data.train) + len(self.data.dev)
        if self.cut < _MENTIONED * texts or not any(TF_IDF in rival.name for rival in self.rivals):
            return ""
        return (
            f"; the model read at most {self.longest} tokens of each text, which cut "
            f"{100 * self.cut / texts:.0f} % of them, and {TF_IDF} all: --longest N reads more, "
            "--long windows everything"
        )

    def choice(self) -> str:
        """Return a sentence on how the kept model was chosen."""
        if len(self.seeds) == 1:
            return f"{self.model} holds the model of seed {self.best.seed}"
        return (
            f"{self.model} holds the model of seed {self.best.seed}, the best of "
            f"{len(self.seeds)} on dev: expect the mean on new texts, not its "
            f"{percent(self.best.score)} %"
        )

    def certainty(self) -> str:
        """Return a sentence on the uncertainty of the best seed's score."""
        low, high = percent(self.interval.low), percent(self.interval.high)
        return (
            f"seed {self.best.seed}: {score_label(self.names[0])} {percent(self.best.score)} %, "
            f"95 % interval over dev sets of this size {low} to {high}"
        )


def _without_losses(seed: TrialResult) -> dict[str, Any]:
    values = seed.to_dict()
    del values["losses"]
    return values
