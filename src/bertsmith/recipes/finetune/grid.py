"""Choosing learning rate, batch and epochs on dev, for as many minutes as there are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertsmith.core.log import say
from bertsmith.core.streams import Purpose, permuted, stream
from bertsmith.recipes.finetune.formatting import percent, told_scores
from bertsmith.recipes.finetune.settings import FinetuneConfig
from bertsmith.recipes.finetune.trial import TrialResult
from bertsmith.recipes.finetune.trial_folder import Trial
from bertsmith.recipes.finetune.trials import Trials


def cells_of(settings: FinetuneConfig) -> list[FinetuneConfig]:
    """The settings to try, shuffled, so that any beginning of them is a sample of all."""
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
    """One of the grid: its settings and what they came to."""

    rate: float
    batch: int
    epochs: int
    result: TrialResult

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain JSON values."""
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
    """What a grid came to: the cells tried, the settings of the best, and how many cells it has."""

    cells: tuple[Cell, ...]
    settings: FinetuneConfig
    of: int

    def note(self) -> str:
        """How the settings were chosen."""
        tried = f"{len(self.cells)} of {self.of}" if len(self.cells) < self.of else f"{self.of}"
        best = max(self.cells, key=lambda cell: cell.result.rank)
        return (
            f"rate {best.rate:g}, batch {best.batch}, epochs {best.epochs} were chosen on dev "
            f"out of {tried} cells, each with a seed that is none of those below; scores on dev "
            f"are that much too good (its own was {percent(best.result.score)} %)"
        )


def cell_name(settings: FinetuneConfig) -> str:
    """The name of a cell's folder."""
    return f"rate-{settings.rate:g}-batch-{settings.batch}-epochs-{settings.epochs}"


def search(trials: Trials, cells: Sequence[Trial], minutes: float | None) -> Searched:
    """Train the cells, as long as the next ones fit into the minutes.

    So many are taken as are trained at once, the first of them always. How long they take on the
    clock, measuring included, is told from those that have ended, by the epochs.
    """
    found: list[Cell] = []
    while len(found) < len(cells):
        following = cells[len(found) :][: None if minutes is None else trials.at_once]
        if found and minutes is not None and any(trials.result(each) is None for each in following):
            spent = sum(cell.result.elapsed for cell in found) / trials.at_once
            an_epoch = spent * trials.at_once / sum(cell.epochs for cell in found)
            if spent + an_epoch * max(each.settings.epochs for each in following) > 60 * minutes:
                say(f"grid: {len(found)} of {len(cells)} cells in {spent / 60:.1f} minutes")
                break
        for trial, result in zip(following, trials.train(following), strict=True):
            of = trial.settings
            found.append(Cell(rate=of.rate, batch=of.batch, epochs=of.epochs, result=result))
    best = max(range(len(found)), key=lambda number: found[number].result.rank)
    searched = Searched(cells=tuple(found), settings=cells[best].settings, of=len(cells))
    say(f"grid: {searched.note()}; {told_scores(found[best].result.scores)}")
    return searched
