"""The trainings of a fine-tuning run, in order: grid, seeds, baselines, learning curve."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bertsmith.core.log import say
from bertsmith.core.streams import Purpose, permuted, stream
from bertsmith.evaluation.metrics import format_scores
from bertsmith.evaluation.significance import Interval
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.finetune.baselines import LeftOut, Rival, frozen_rivals, static_rival
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneSettings, SearchConfig
from bertsmith.recipes.finetune.frozen_words import frozen_word_rivals
from bertsmith.recipes.finetune.inputs import Prepared
from bertsmith.recipes.finetune.outcome import (
    Cell,
    CurvePoint,
    Difference,
    FinetuneOutcome,
    Searched,
    best_of,
    difference_of,
    from_constant,
)
from bertsmith.recipes.finetune.tfidf import tfidf_rival
from bertsmith.recipes.finetune.trial import Trial, TrialResult, read_evidence
from bertsmith.recipes.finetune.trials import Trials
from bertsmith.tasks.task import UNTUNED, Evidence, interval_of
from bertsmith.training.run_folder import RunFolder, read_record, write_record


def cells_of(settings: FinetuneSettings, grid: SearchConfig) -> list[FinetuneSettings]:
    """Return the settings of the grid, shuffled, so that every prefix is a random sample."""
    cells = [
        replace(settings, learning_rate=rate, batch_size=batch, epochs=epochs)
        for rate, batch, epochs in itertools.product(
            grid.learning_rates, grid.batch_sizes, grid.epochs
        )
    ]
    key = stream(Purpose.GRID_ORDER, settings.seed)
    order = permuted(np.arange(len(cells)), len(cells), key)
    return [cells[number] for number in order.tolist()]


def cell_name(settings: FinetuneSettings) -> str:
    """Return the name of a cell's folder."""
    return f"rate-{settings.learning_rate:g}-batch-{settings.batch_size}-epochs-{settings.epochs}"


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
            tried.append(
                Cell(rate=of.learning_rate, batch=of.batch_size, epochs=of.epochs, result=result)
            )
    best = max(range(len(tried)), key=lambda number: tried[number].result.rank)
    searched = Searched(cells=tuple(tried), settings=cells[best].settings, of=len(cells))
    say(f"grid: {searched.note()}; {format_scores(tried[best].result.scores)}")
    return searched


CURVE_SEEDS = 3
RANDOM = "the same network from random weights"
_MIN_CURVE_ROWS = 32
_MAX_POINTS = 5


def training_counts(asked: ExperimentConfig, settings: FinetuneSettings, rows: int) -> list[int]:
    """Return the lengths of the lists of trainings that are trained in parallel."""
    counts = [asked.seeds, asked.seeds if asked.baselines else 0]
    if asked.grid:
        counts.append(len(cells_of(settings, asked.search)))
    if asked.curve:
        counts += [min(asked.seeds, CURVE_SEEDS)] * len(curve_points(rows))
    return counts


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The trainings of one run, all on the same rows and from the same model."""

    folder: RunFolder
    settings: FinetuneSettings
    prepared: Prepared
    trials: Trials
    make_model: Callable[[int], Model]

    def run(self, asked: ExperimentConfig) -> FinetuneOutcome:
        """Run all trainings that have no result yet, and return the outcome."""
        searched = self._searched(asked) if asked.grid else None
        chosen = self if searched is None else replace(self, settings=searched.settings)
        seeds = range(self.settings.seed, self.settings.seed + asked.seeds)
        results = chosen._seeds("seeds", seeds, keep_best=True)
        if asked.baselines:
            random = chosen._random(seeds)
        # after the seeds, as users wait for their model
        spent = sum(result.seconds for result in results)
        rivals, left_out = chosen._rivals(spent, seeds if asked.baselines else ())
        if asked.baselines:
            rivals.append(random)
        data, prepared = self.prepared.data, self.prepared
        best = max(results, key=lambda result: result.rank)
        evidence, target = self._evidence("seeds", best.seed), self.settings.target_accuracy
        measuring = data.task.measuring
        tuned = UNTUNED if target is None else measuring.tune(evidence, target)
        interval = interval_of(data.task, evidence, data.labels)
        majority_baseline = measuring.majority_baseline(data.train, data.dev, data.labels)
        return FinetuneOutcome(
            folder=self.folder.path,
            model=self.folder.model,
            data=data,
            seeds=tuple(results),
            interval=interval,
            notes=(*measuring.notes(evidence, tuned), *left_out),
            rivals=tuple(rivals),
            difference=chosen._difference(results, rivals, majority_baseline, interval),
            majority_baseline=majority_baseline,
            grid=searched,
            curve=chosen._curve(results) if asked.curve else (),
            long=prepared.train.long_texts + prepared.dev.long_texts,
            cut=prepared.train.cut_texts + prepared.dev.cut_texts,
            longest=prepared.room.longest,
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
        prefix = f"{title}, " if title else ""
        trials = [
            self._trial(place, f"{prefix}seed {seed} ({number} of {len(seeds)})", seed)
            for number, seed in enumerate(seeds, 1)
        ]
        return self.trials.train(trials, keep_best=keep_best)

    def _searched(self, asked: ExperimentConfig) -> Searched:
        # a separate seed, so that selection by chance does not bias the reported seeds
        seed = self.settings.seed + asked.seeds
        cells = cells_of(self.settings, asked.search)
        trials = [
            replace(
                self._trial("grid", f"grid, cell {number} of {len(cells)}", seed),
                place=f"grid/{cell_name(cell)}",
                settings=cell,
            )
            for number, cell in enumerate(cells, 1)
        ]
        return search(self.trials, trials, asked.minutes)

    def _rivals(self, spent: float, seeds: Sequence[int]) -> tuple[list[Rival], list[str]]:
        """Return the baselines, read from an earlier part of the run or trained, and those skipped.

        `spent` is the training time of the seeds in seconds; `seeds` are those of the baselines on
        frozen layers, empty if these are not asked for.
        """
        path = self.folder.path / "rivals.json"
        known = read_record(path) if path.exists() else {}
        # those of a run that has more seeds now are trained with these
        if known.get("seeds") == list(seeds):
            return [Rival.from_dict(rival) for rival in known["rivals"]], known["left_out"]
        tried: list[Rival | LeftOut | None] = []
        if seeds or self.settings.baseline:
            seconds = self.settings.baseline_seconds
            tried.append(tfidf_rival(self.prepared, max(seconds, spent) if seconds else 0.0))
        if seeds:
            model = self.make_model(self.settings.seed)
            tried += [static_rival(model, self.prepared), *frozen_rivals(model, self.prepared)]
            tried += frozen_word_rivals(model, self.prepared, seeds)
        rivals = [rival for rival in tried if isinstance(rival, Rival)]
        left_out = [str(rival) for rival in tried if isinstance(rival, LeftOut)]
        trained = [rival.to_file() for rival in rivals]
        kept = {"seeds": list(seeds), "rivals": trained, "left_out": left_out}
        write_record(path, kept)
        return rivals, left_out

    def _difference(
        self,
        results: Sequence[TrialResult],
        rivals: Sequence[Rival],
        majority_baseline: tuple[str, float] | None,
        interval: Interval,
    ) -> Difference | None:
        """Return the difference between the seeds and the best of the baselines."""
        best, data = best_of(rivals, majority_baseline), self.prepared.data
        if best is None:
            return None
        rival = next((rival for rival in rivals if rival.name == best[0]), None)
        if rival is None or not (rival.evidences or rival.name == RANDOM):
            mean = float(np.mean([result.score for result in results]))
            return from_constant(mean, interval, best[1], len(data.dev))
        ours = [self._evidence("seeds", result.seed) for result in results]
        theirs = rival.evidences or [self._evidence("random", result.seed) for result in results]
        return difference_of(data.task, data.labels, ours, theirs)

    def _random(self, seeds: Sequence[int]) -> Rival:
        fresh = _FromRandomWeights(self.make_model)
        results = replace(self, make_model=fresh)._seeds("random", seeds, title="random weights")
        return Rival(
            name=RANDOM,
            scores=tuple(result.scores for result in results),
            seconds=sum(result.seconds for result in results) / len(results),
            simpler=False,
        )

    def _evidence(self, place: str, seed: int) -> Evidence:
        return read_evidence(self.trials.folder(f"{place}/seed-{seed}").path)

    def _curve(self, results: Sequence[TrialResult]) -> tuple[CurvePoint, ...]:
        """Return the scores with fewer training rows, and last with all of them."""
        points = []
        rows = len(self.prepared.data.train)
        key = stream(Purpose.LEARNING_CURVE, self.settings.seed)
        order = permuted(np.arange(rows), rows, key)
        seeds = [result.seed for result in results[:CURVE_SEEDS]]
        for count in curve_points(rows):
            fewer = self.prepared.fewer(np.sort(order[:count]))
            part = replace(self, prepared=fewer)
            trained = part._seeds(f"curve/{count}", seeds, title=f"{count} {fewer.task.unit}")
            points.append(CurvePoint(rows=count, results=tuple(trained)))
        return (*points, CurvePoint(rows=rows, results=tuple(results)))


@dataclass(frozen=True)
class _FromRandomWeights:
    """A picklable function from a seed to a randomly initialised model of the same config."""

    like: Callable[[int], Model]

    def __call__(self, seed: int) -> Model:
        model = self.like(seed)
        return build_model(model.config, seed=seed).to(model.device)


def curve_points(rows: int) -> list[int]:
    """Return the row counts of a learning curve but for the last: 1/2, 1/4, 1/8, ..."""
    points = [rows >> halvings for halvings in range(1, _MAX_POINTS + 1)]
    return sorted(point for point in points if point >= _MIN_CURVE_ROWS)
