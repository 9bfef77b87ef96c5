"""Everything that a fine-tuning trains, in its order: grid, contestants, seeds, learning curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bertsmith.batches.randomness import permuted, stream
from bertsmith.errors import ConfigError
from bertsmith.models.model import Model, build_model
from bertsmith.recipes.evaluate import interval_of
from bertsmith.recipes.finetune_settings import FinetuneConfig
from bertsmith.recipes.frozen import frozen_rivals, static_rival
from bertsmith.recipes.grid import Searched, cell_name, cells_of, search
from bertsmith.recipes.outcome import CurvePoint, FinetuneOutcome
from bertsmith.recipes.rivals import Rival
from bertsmith.recipes.tasks.task import Evidence
from bertsmith.recipes.tfidf import tfidf_rival
from bertsmith.recipes.trial import Prepared, TrialResult
from bertsmith.recipes.trial_folder import DEV, Trial, read_json
from bertsmith.recipes.trials import Trials
from bertsmith.training.run_folder import RunFolder, write_json

CURVE_SEEDS = 3
RANDOM = "the same network from random weights"
_FEWEST = 32
_MOST_POINTS = 5
_PART = 203


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be trained."""

    seeds: int
    grid: bool = False
    minutes: float | None = None
    curve: bool = False
    baselines: bool = False

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ConfigError(f"seeds is {self.seeds}", remedy="it must be at least 1")
        if self.minutes is not None and not self.grid:
            raise ConfigError(
                "--minutes are for --grid", remedy="leave them out, or give --grid too"
            )
        if self.minutes is not None and not self.minutes > 0:
            raise ConfigError(f"minutes is {self.minutes}", remedy="it must be above 0")

    def counts(self, settings: FinetuneConfig, rows: int) -> list[int]:
        """The trainings of each list that is gone through side by side, of so many rows."""
        counts = [self.seeds, self.seeds if self.baselines else 0]
        if self.grid:
            counts.append(len(cells_of(settings)))
        if self.curve:
            counts += [min(self.seeds, CURVE_SEEDS)] * len(curve_points(rows))
        return counts


@dataclass(frozen=True, kw_only=True)
class Contest:
    """The trainings of one run, all of the same rows and from the same model."""

    folder: RunFolder
    settings: FinetuneConfig
    prepared: Prepared
    trials: Trials
    make_model: Callable[[int], Model]

    def hold(self, asked: Asked) -> FinetuneOutcome:
        """Train all that is not trained yet; what it came to."""
        searched = self._searched(asked) if asked.grid else None
        chosen = self if searched is None else replace(self, settings=searched.settings)
        rivals = chosen._rivals(baselines=asked.baselines)
        first = self.settings.seed
        results = chosen._seeds("seeds", range(first, first + asked.seeds), keep_best=True)
        if asked.baselines:
            rivals.append(chosen._random(range(first, first + asked.seeds)))
        data, prepared = self.prepared.data, self.prepared
        evidence = self._evidence(results)
        return FinetuneOutcome(
            folder=self.folder.path,
            model=self.folder.model,
            data=data,
            seeds=tuple(results),
            interval=interval_of(data.task, evidence, data.labels),
            notes=tuple(data.task.notes(evidence, data.labels)),
            rivals=tuple(rivals),
            floor=data.task.floor(data.train, data.dev, data.labels),
            grid=searched,
            curve=chosen._curve(results) if asked.curve else (),
            long=prepared.train.long_texts + prepared.dev.long_texts,
            cut=prepared.train.cut_texts + prepared.dev.cut_texts,
        )

    def _trial(self, place: str, title: str, seed: int) -> Trial:
        return Trial(
            place=f"{place}/seed-{seed}",
            title=title,
            settings=self.settings,
            seed=seed,
            make_model=self.make_model,
            prepared=self.prepared,
        )

    def _seeds(
        self, place: str, seeds: Sequence[int], *, keep_best: bool = False, title: str = ""
    ) -> list[TrialResult]:
        told = f"{title}, " if title else ""
        trials = [
            self._trial(place, f"{told}seed {seed} ({number} of {len(seeds)})", seed)
            for number, seed in enumerate(seeds, 1)
        ]
        return self.trials.train(trials, keep_best=keep_best)

    def _searched(self, asked: Asked) -> Searched:
        # a seed of its own: the luck of the one that wins must not count among those told
        seed = self.settings.seed + asked.seeds
        cells = cells_of(self.settings)
        trials = [
            replace(
                self._trial("grid", f"grid, cell {number} of {len(cells)}", seed),
                place=f"grid/{cell_name(cell)}",
                settings=cell,
            )
            for number, cell in enumerate(cells, 1)
        ]
        return search(self.trials, trials, asked.minutes)

    def _rivals(self, *, baselines: bool) -> list[Rival]:
        """What an earlier part of the run has found, or found now."""
        path = self.folder.path / "rivals.json"
        if path.exists():
            return [Rival.from_dict(each) for each in read_json(path)["rivals"]]
        found: list[Rival | None] = []
        if baselines or self.settings.baseline:
            found.append(tfidf_rival(self.prepared))
        if baselines:
            model = self.make_model(self.settings.seed)
            found += [static_rival(model, self.prepared), *frozen_rivals(model, self.prepared)]
        rivals = [rival for rival in found if rival is not None]
        write_json(path, {"rivals": [rival.to_dict() for rival in rivals]})
        return rivals

    def _random(self, seeds: Sequence[int]) -> Rival:
        fresh = _FromRandomWeights(self.make_model)
        results = replace(self, make_model=fresh)._seeds("random", seeds, title="random weights")
        return Rival(
            name=RANDOM,
            scores=tuple(result.scores for result in results),
            seconds=sum(result.seconds for result in results) / len(results),
            simpler=False,
        )

    def _evidence(self, results: Sequence[TrialResult]) -> Evidence:
        """How right the best seed is on each row of dev."""
        best = max(results, key=lambda result: result.rank)
        dev = read_json(self.trials.folder(f"seeds/seed-{best.seed}").path / DEV)
        return np.array(dev["evidence"], np.float64)

    def _curve(self, results: Sequence[TrialResult]) -> tuple[CurvePoint, ...]:
        """Scores with fewer rows, and at last with all of them."""
        points = []
        rows = len(self.prepared.data.train)
        order = permuted(np.arange(rows), rows, stream(self.settings.seed, _PART))
        seeds = [result.seed for result in results[:CURVE_SEEDS]]
        for count in curve_points(rows):
            fewer = self.prepared.fewer(np.sort(order[:count]))
            part = replace(self, prepared=fewer)
            found = part._seeds(f"curve/{count}", seeds, title=f"{count} {fewer.task.unit}")
            points.append(CurvePoint(rows=count, results=tuple(found)))
        return (*points, CurvePoint(rows=rows, results=tuple(results)))


@dataclass(frozen=True)
class _FromRandomWeights:
    """Makes of a seed a model like another, with weights of its own; other processes can too."""

    like: Callable[[int], Model]

    def __call__(self, seed: int) -> Model:
        model = self.like(seed)
        return build_model(model.config, seed=seed).to(model.device)


def curve_points(rows: int) -> list[int]:
    """The numbers of rows of a learning curve but for all of them: halves, halves of halves, ..."""
    points = [rows >> halvings for halvings in range(1, _MOST_POINTS + 1)]
    return sorted(point for point in points if point >= _FEWEST)
