"""Tables of experiments: means, intervals over seeds, and differences to the first cell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import stdtrit

from ablations.cells import Cell, Experiment
from ablations.tasks import TASKS

CONFIDENCE = 0.95

Results = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over seeds and the half width of its 95 % interval, NaN of one seed."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Return the estimate from one value a seed, by Student's t."""
        count = len(values)
        if count < 2:
            return cls(mean=statistics.mean(values), half=math.nan)
        quantile = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
        half = quantile * statistics.stdev(values) / math.sqrt(count)
        return cls(mean=statistics.mean(values), half=half)

    @property
    def differs(self) -> bool:
        """Return whether the interval is on one side of zero."""
        return abs(self.mean) > self.half

    def numbers(self) -> dict[str, float | None]:
        """Return the mean and the half width as JSON values, null of one seed."""
        return {"mean": self.mean, "half": None if math.isnan(self.half) else self.half}

    def shown(self, digits: int, *, signed: bool = False) -> str:
        """Return the mean with the half width, where there is one."""
        mean = f"{self.mean:{'+' if signed else ''}.{digits}f}"
        return mean if math.isnan(self.half) else f"{mean} ± {self.half:.{digits}f}"


def measured(results: Results, tasks: Sequence[str]) -> dict[str, float]:
    """Return what is shown of a cell's results: held-out figures, and scores in percent."""
    held_out = results["pretraining"]
    shown = {}
    if "masked_lm_loss" in held_out:
        shown["masked LM loss"] = held_out["masked_lm_loss"]
    if "next_sentence_accuracy" in held_out:
        shown["NSP %"] = 100 * held_out["next_sentence_accuracy"]
    for task in tasks:
        name = TASKS[task].score
        label = "F1" if name == "f1" else "%"
        shown[f"{task} {label}"] = 100 * results["tasks"][task]["scores"][name]
    return shown


def estimates(
    experiment: Experiment, results: Mapping[str, Sequence[Results]]
) -> dict[str, dict[str, dict[str, Estimate]]]:
    """Return the estimates of each cell and measurement, as `mean` and as `difference`.

    Differences are those to the first cell, seed by seed: it has the same initial weights and the
    same data of a seed where the cells allow.
    """
    by_cell = {
        name: [measured(seed, experiment.tasks) for seed in seeds]
        for name, seeds in results.items()
    }
    first = by_cell.get(experiment.cells[0].name, [])
    found: dict[str, dict[str, dict[str, Estimate]]] = {}
    for name, seeds in by_cell.items():
        found[name] = {}
        for what in seeds[0]:
            values = [seed[what] for seed in seeds]
            found[name][what] = {"mean": Estimate.of(values)}
            if first and first is not seeds and what in first[0]:
                pairs = zip(values, (seed[what] for seed in first), strict=False)
                found[name][what]["difference"] = Estimate.of([a - b for a, b in pairs])
    return found


def table(experiment: Experiment, results: Mapping[str, Sequence[Results]]) -> list[list[str]]:
    """Return the rows of a table, the first of them its header; cells without results are left out.

    A difference whose interval is on one side of zero is marked with an asterisk.
    """
    found = estimates(experiment, results)
    names = list(dict.fromkeys(what for cell in found.values() for what in cell))
    published = list(dict.fromkeys(what for cell in experiment.cells for what in cell.published))
    rows = [["", "seeds", *names, *(f"paper: {what}" for what in published)]]
    for cell in experiment.cells:
        if cell.name in found:
            seeds = str(len(results[cell.name]))
            own = [_shown(found[cell.name].get(what), what) for what in names]
            rows.append([cell.name, seeds, *own, *_published(cell, published)])
    return rows


def _shown(estimate: Mapping[str, Estimate] | None, what: str) -> str:
    if estimate is None:
        return "-"
    digits = 3 if what.endswith("loss") else 1
    text = estimate["mean"].shown(digits)
    difference = estimate.get("difference")
    if difference is None:
        return text
    mark = " *" if difference.differs else ""
    return f"{text} ({difference.shown(digits, signed=True)}){mark}"


def _published(cell: Cell, names: Sequence[str]) -> list[str]:
    return [f"{cell.published[what]:.1f}" if what in cell.published else "-" for what in names]


def markdown(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a section of a page with the table."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return f"## {title}\n" + "\n".join(lines) + "\n"
