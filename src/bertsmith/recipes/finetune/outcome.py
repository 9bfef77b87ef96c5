"""The outcome of a fine-tuning run: scores of all seeds, the best baseline, conclusions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bertsmith.core.errors import ConfigError
from bertsmith.core.log import console, say, table_of
from bertsmith.core.printable import counted
from bertsmith.evaluation.metrics import format_mean, mean_and_spread, percent, score_label
from bertsmith.evaluation.significance import (
    NO_INTERVAL,
    Interval,
    over_seeds,
    welch_margin,
)
from bertsmith.recipes.finetune.baselines import TF_IDF, BaselineScores
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData
from bertsmith.recipes.finetune.trial import TrialResult
from bertsmith.tasks.uncertainty import Difference


@dataclass(frozen=True, kw_only=True)
class GridCell:
    """A cell of the grid: its settings and its result."""

    settings: FinetuneSettings
    result: TrialResult

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "rate": self.settings.chosen_learning_rate,
            "batch": self.settings.batch_size,
            "epochs": self.settings.chosen_epochs,
            "scores": self.result.scores,
            "constant": self.result.constant,
            "seconds": self.result.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The result of a grid search: cells tried, and the number of cells in all."""

    cells: tuple[GridCell, ...]
    total: int

    @property
    def best(self) -> GridCell:
        """Return the best cell on dev."""
        return max(self.cells, key=lambda cell: cell.result.rank)

    def note(self) -> str:
        """Return a sentence on how the settings were chosen."""
        tried, settings = len(self.cells), self.best.settings
        score = f"{percent(self.best.result.score)} %"
        chosen = (
            f"rate {settings.chosen_learning_rate:g}, batch {settings.batch_size}, epochs "
            f"{settings.chosen_epochs}"
        )
        if tried == 1 < self.total:
            return (
                f"{chosen}: of {self.total} cells only this one was tried, so nothing was chosen; "
                f"more --minutes allow more of them (its score on dev: {score})"
            )
        return (
            f"{chosen}: the best on dev of {f'{tried} of ' * (tried < self.total)}{self.total} "
            "cells, each trained with a seed that is not among those below; its score there, "
            f"{score}, is too good, because the cell was chosen by it"
        )


_USUAL_SEEDS = 5
# share of cut texts above which it is mentioned
_MENTIONED = 0.05


def best_of(
    baselines: Sequence[BaselineScores], majority_baseline: tuple[str, float] | None
) -> tuple[str, float, bool] | None:
    """Return name and mean score of the best baseline, and whether it is simpler; or None."""
    ranked = [(baseline.name, baseline.mean, baseline.simpler) for baseline in baselines]
    if majority_baseline is not None:
        # last, so that of equal scores a trained baseline comes first
        ranked.append((*majority_baseline, True))
    return max(ranked, key=lambda baseline: baseline[1], default=None)


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

    `majority_baseline` has a name and a score; `interval` is the bootstrap interval of the seeds'
    mean score over dev sets, and `notes` are remarks on it; `difference` is that to the best
    baseline, None without any; `long` counts the rows over `longest` tokens and `cut` those of them
    that were truncated, where the model could read `limit` tokens.
    """

    folder: Path
    model: Path
    data: LabelledData[Any]
    seeds: tuple[TrialResult, ...]
    interval: Interval
    notes: tuple[str, ...]
    baselines: tuple[BaselineScores, ...]
    difference: Difference | None
    majority_baseline: tuple[str, float] | None
    grid: SearchResult | None
    curve: tuple[CurvePoint, ...]
    long: int
    cut: int
    longest: int
    limit: int

    def __repr__(self) -> str:
        name = self.names[0]
        score = f"{score_label(name)} {format_mean(self.values(name))} %"
        seeds = counted(len(self.seeds), "seed")
        return f"<FinetuneOutcome {str(self.folder)!r}: {self.data.task.name}, {score}, {seeds}>"

    @property
    def best(self) -> TrialResult:
        """Return the best seed on dev."""
        return max(self.seeds, key=lambda seed: seed.rank)

    @property
    def names(self) -> list[str]:
        """Return the names of the scores, the primary one first."""
        return list(self.seeds[0].scores)

    def values(self, name: str) -> list[float]:
        """Return a score of each seed, by one of the `names`; raises `ConfigError`."""
        if name not in self.names:
            remedy = f"it must be one of {', '.join(self.names)}"
            raise ConfigError(f"name is {name!r}", remedy=remedy)
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
            "seeds": [
                {name: value for name, value in seed.to_dict().items() if name != "losses"}
                for seed in self.seeds
            ],
            "best_seed": self.best.seed,
            "interval": [self.interval.low, self.interval.high] if self.interval.known else None,
            "notes": list(self.notes),
            "majority_baseline": None
            if self.majority_baseline is None
            else dict([self.majority_baseline]),
            "baselines": [baseline.to_dict() for baseline in self.baselines],
            "difference": None if self.difference is None else self.difference.to_dict(),
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
        for baseline in self.baselines:
            columns = [baseline.values(name) for name in self.names]
            seconds = baseline.seconds
            rows.append(
                (
                    baseline.name,
                    *(format_mean(of) if of else "" for of in columns),
                    f"{seconds:.1f}",
                )
            )
        if self.majority_baseline is not None:
            name, value = self.majority_baseline
            rows.append((name, percent(value), *[""] * len(self.names)))
        return rows

    @property
    def best_baseline(self) -> tuple[str, float, bool] | None:
        """Return name and mean score of the best baseline, and whether it is simpler."""
        return best_of(self.baselines, self.majority_baseline)

    def verdict(self) -> str:
        """Return a sentence on what wins on dev, and whether that is significant."""
        if self.best_baseline is None or self.difference is None:
            return "there is no baseline to compare it with"
        values = self.values(self.names[0])
        mean, count = mean_and_spread(values)[0], len(values)
        name, best, simpler = self.best_baseline
        points, difference = 100 * abs(mean - best), self.difference
        seed_margin = welch_margin(values, self._values_of(name) or [best])
        uncertainty = (
            f"95 % over dev sets of this size: {difference.interval(of_other=mean < best)}"
        )
        if difference.baselines > 1 and mean < best:
            uncertainty += (
                f", p = {difference.p:.2g} for the best of {difference.baselines} baselines"
            )
        elif difference.contradicts_interval:
            uncertainty += f", but by all tests of these rows p = {difference.p:.2g}"
        if count > 1:
            uncertainty += f"; {over_seeds(seed_margin)}"
        wins = difference.certain and points > max(100 * difference.margin(seed_margin), 0.005)
        too_few = 1 < count < _USUAL_SEEDS and difference.certain and not wins
        if not wins:
            verdict = f"no winner: {percent(mean)} against {percent(best)} of {name}"
            if too_few:
                verdict += f", and {count} seeds are too few to tell whether {points:.2f} points "
                verdict += "are luck"
            elif percent(mean) != percent(best):
                verdict += f", and {points:.2f} points may well be luck"
            verdict += f" ({uncertainty})"
        elif mean > best:
            verdict = f"the model wins by {points:.2f} points over {name} ({uncertainty})"
        else:
            verdict = (
                f"{name} wins by {points:.2f} points{', and is simpler' * simpler} ({uncertainty})"
            )
        if count == 1:
            verdict += "; one seed gives no spread: use --seeds 5"
        elif too_few:
            verdict += f"; use --seeds {_USUAL_SEEDS}"
        return verdict + self._read_less()

    def _values_of(self, name: str) -> list[float]:
        """Return the primary score of each seed of a baseline, none of the majority baseline."""
        baseline = next((item for item in self.baselines if item.name == name), None)
        return [] if baseline is None else baseline.values(self.names[0])

    def _read_less(self) -> str:
        """Return a note if the model read less of the texts than the bag of words, else ""."""
        texts = len(self.data.train) + len(self.data.dev)
        if self.cut < _MENTIONED * texts or not any(
            TF_IDF in baseline.name for baseline in self.baselines
        ):
            return ""
        more = "--max-length N reads more, " if self.longest < self.limit else ""
        return (
            f"; the model read at most {self.longest} tokens of each text, which cut "
            f"{100 * self.cut / texts:.0f} % of them, and {TF_IDF} all: {more}"
            "--truncation windows reads everything"
        )

    def choice(self) -> str:
        """Return a sentence on how the kept model was chosen."""
        if len(self.seeds) == 1:
            return f"{self.model} holds the model of seed {self.best.seed}"
        return (
            f"{self.model} holds the model of seed {self.best.seed}, the best of {len(self.seeds)} "
            f"on dev: expect the mean on new texts, not its {percent(self.best.score)} %"
        )

    def certainty(self) -> str:
        """Return a sentence on the uncertainty of the mean over the seeds.

        The best seed was chosen by these very rows, so that its interval would be too high.
        """
        values = self.values(self.names[0])
        seeds = f"seed {self.best.seed}" if len(values) == 1 else f"mean of {len(values)} seeds"
        score = f"{seeds}: {score_label(self.names[0])} {percent(mean_and_spread(values)[0])} %"
        if not self.interval.known:
            return f"{score}; {NO_INTERVAL}"
        low, high = percent(self.interval.low), percent(self.interval.high)
        return f"{score}, 95 % interval over dev sets of this size {low} to {high}"


def print_outcome(outcome: FinetuneOutcome) -> None:
    """Print the table of scores and the conclusions, on standard error."""
    console.print(table_of(outcome.header(), outcome.rows(), numbers=True))
    for point in outcome.curve:
        say(f"{point.rows:>9,} {outcome.data.task.unit}: {format_mean(point.values)} %")
    for line in conclusions(outcome):
        say(line)


def conclusions(outcome: FinetuneOutcome) -> list[str]:
    """Return the conclusions drawn from the scores."""
    lines = [outcome.verdict(), outcome.certainty(), *outcome.notes]
    if outcome.constant:
        seeds = len(outcome.seeds)
        degenerate = (
            "the model predicts" if seeds == 1 else f"{outcome.constant} of {seeds} seeds predict"
        )
        lines.append(
            f"{degenerate} the same for every row: try another --learning-rate (small models need "
            "3e-4 to 1e-3, large ones less), or more epochs"
        )
    if outcome.grid is not None:
        lines.append(outcome.grid.note())
    return [*lines, outcome.choice()]
