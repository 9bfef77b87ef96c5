"""Choice of learning rate, batch and epochs on dev, within a time limit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertsmith.core.log import say
from bertsmith.core.streams import Purpose, permuted, stream
from bertsmith.recipes.finetune.formatting import format_scores, percent
from bertsmith.recipes.finetune.settings import FinetuneConfig
from bertsmith.recipes.finetune.trial import TrialResult
from bertsmith.recipes.finetune.trial_folder import Trial
from bertsmith.recipes.finetune.trials import Trials


def cells_of(settings: FinetuneConfig) -> list[FinetuneConfig]:
    """Return the settings of the grid, shuffled, so that every prefix is a random sample."""
    grid = settings.search
    cells = [
        replace(settings, rate=rate, batch=batch, epochs=epochs)
        for rate, batch, epochs in itertools.product(grid.rates, grid.batches, grid.epochs)
    ]
    key = stream(Purpose.GRID_ORDER, settings.seed)
    order = permuted(np.arange(len(cells)), len(cells), key)
    return [cells[number] for number in order.tolist()]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of the grid: its settings and its result."""

    rate: float
    batch: int
    epochs: int
    result: TrialResult

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "rate": self.rate,
            "batch": self.batch,
            "epochs": self.epochs,
            "scores": self.result.scores,
            "constant": self.result.constant,
            "seconds": self.result.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class Searched:
    """The result of a grid search: cells tried, settings of the best, number of cells in all."""

    cells: tuple[Cell, ...]
    settings: FinetuneConfig
    of: int

    def note(self) -> str:
        """Return a sentence on how the settings were chosen."""
        tried = f"{len(self.cells)} of {self.of}" if len(self.cells) < self.of else f"{self.of}"
        best = max(self.cells, key=lambda cell: cell.result.rank)
        return (
            f"rate {best.rate:g}, batch {best.batch}, epochs {best.epochs} were chosen on dev "
            f"out of {tried} cells, each with a seed that is none of those below; scores on dev "
            f"are that much too good (its own was {percent(best.result.score)} %)"
        )


def cell_name(settings: FinetuneConfig) -> str:
    """Return the name of a cell's folder."""
    return f"rate-{settings.rate:g}-batch-{settings.batch}-epochs-{settings.epochs}"


def search(trials: Trials, cells: Sequence[Trial], minutes: float | None) -> Searched:
    """Train the cells for as long as the next ones fit into the time limit.

    As many are trained together as `trials` trains at once, the first ones always. Their duration
    on the clock, including evaluation, is estimated from finished cells, by epochs.
    """
    tried: list[Cell] = []
    while len(tried) < len(cells):
        following = cells[len(tried) :][: None if minutes is None else trials.at_once]
        if (
            tried
            and minutes is not None
            and any(trials.result(trial) is None for trial in following)
        ):
            spent = sum(cell.result.elapsed for cell in tried) / trials.at_once
            an_epoch = spent * trials.at_once / sum(cell.epochs for cell in tried)
            if spent + an_epoch * max(trial.settings.epochs for trial in following) > 60 * minutes:
                say(f"grid: {len(tried)} of {len(cells)} cells in {spent / 60:.1f} minutes")
                break
        for trial, result in zip(following, trials.train(following), strict=True):
            of = trial.settings
            tried.append(Cell(rate=of.rate, batch=of.batch, epochs=of.epochs, result=result))
    best = max(range(len(tried)), key=lambda number: tried[number].result.rank)
    searched = Searched(cells=tuple(tried), settings=cells[best].settings, of=len(cells))
    say(f"grid: {searched.note()}; {format_scores(tried[best].result.scores)}")
    return searched
