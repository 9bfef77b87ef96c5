"""The trainings of a fine-tuning run, in order: grid, seeds, baselines, learning curve."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bertsmith.core.log import say
from bertsmith.core.streams import Purpose, permutation, stream
from bertsmith.evaluation.metrics import format_scores
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.finetune.baselines import BaselineScores, SkippedBaseline
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneSettings, SearchConfig
from bertsmith.recipes.finetune.frozen import frozen_baselines
from bertsmith.recipes.finetune.inputs import Prepared
from bertsmith.recipes.finetune.outcome import (
    CurvePoint,
    FinetuneOutcome,
    GridCell,
    SearchResult,
    best_of,
)
from bertsmith.recipes.finetune.tfidf import tfidf_baseline
from bertsmith.recipes.finetune.trial import Trial, TrialResult
from bertsmith.recipes.finetune.trials import Trials
from bertsmith.tasks.task import UNTUNED, Evidence, clusters_of
from bertsmith.tasks.uncertainty import (
    Difference,
    clusters_note,
    difference_of,
    difference_to_constant,
    interval_of_mean,
    of_best,
)
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
    return [cells[number] for number in permutation(len(cells), key).tolist()]


def cell_name(settings: FinetuneSettings) -> str:
    """Return the name of a cell's folder."""
    rate = settings.chosen_learning_rate
    return f"rate-{rate:g}-batch-{settings.batch_size}-epochs-{settings.chosen_epochs}"


def search(trials: Trials, cells: Sequence[Trial], minutes: float | None) -> SearchResult:
    """Train the cells for as long as the next ones fit into the time limit.

    As many are trained together as `trials` trains at once, the first ones always. Their duration
    on the clock, including evaluation, is estimated from finished cells, by epochs.
    """
    tried: list[GridCell] = []
    while len(tried) < len(cells):
        following = cells[len(tried) :][: None if minutes is None else trials.at_once]
        if (
            tried
            and minutes is not None
            and any(trials.result(trial.subfolder) is None for trial in following)
        ):
            spent = sum(cell.result.elapsed for cell in tried) / trials.at_once
            an_epoch = spent * trials.at_once / sum(cell.settings.chosen_epochs for cell in tried)
            if (
                spent + an_epoch * max(trial.settings.chosen_epochs for trial in following)
                > 60 * minutes
            ):
                say(f"grid: {len(tried)} of {len(cells)} cells in {spent / 60:.1f} minutes")
                break
        for trial, result in zip(following, trials.train(following), strict=True):
            tried.append(GridCell(settings=trial.settings, result=result))
    searched = SearchResult(cells=tuple(tried), total=len(cells))
    say(f"grid: {searched.note()}; {format_scores(searched.best.result.scores)}")
    return searched


CURVE_SEEDS = 3
RANDOM = "the same network from random weights"
_MIN_CURVE_ROWS = 32
_MAX_POINTS = 5


def training_counts(options: ExperimentConfig, settings: FinetuneSettings, rows: int) -> list[int]:
    """Return the lengths of the lists of trainings that are trained in parallel."""
    counts = [options.seeds, options.seeds if options.baselines else 0]
    if options.grid:
        counts.append(len(cells_of(settings, options.search)))
    if options.curve:
        counts += [min(options.seeds, CURVE_SEEDS)] * len(curve_points(rows))
    return counts


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The trainings of one run, all on the same rows and from the same model."""

    folder: RunFolder
    settings: FinetuneSettings
    prepared: Prepared
    trials: Trials
    make_model: Callable[[int], Model]
    limit: int
    """Tokens that the model can read at once."""

    def run(self, options: ExperimentConfig) -> FinetuneOutcome:
        """Run all trainings that have no result yet, and return the outcome."""
        searched = self._search_grid(options) if options.grid else None
        chosen = self if searched is None else replace(self, settings=searched.best.settings)
        seeds = range(self.settings.seed, self.settings.seed + options.seeds)
        results = chosen._train_seeds("seeds", seeds, keep_best=True)
        if options.baselines:
            random = chosen._train_from_random_weights(seeds)
        # after the seeds, as users wait for their model
        spent = sum(result.seconds for result in results)
        baselines, left_out = chosen._baselines(spent, seeds if options.baselines else ())
        if options.baselines:
            baselines.append(random)
        data, prepared = self.prepared.data, self.prepared
        best = max(results, key=lambda result: result.rank)
        evidence = self.trials.evidence(f"seeds/seed-{best.seed}")
        target = self.settings.target_accuracy
        measuring = data.task.measuring
        tuned = UNTUNED if target is None else measuring.tune(evidence, target)
        clusters = clusters_of(data.task, data.dev, evidence)
        evidences = self._evidences("seeds", results)
        interval = interval_of_mean(data.task, data.labels, evidences, clusters)
        majority_baseline = measuring.majority_baseline(data.train, data.dev, data.labels)
        return FinetuneOutcome(
            folder=self.folder.path,
            model=self.folder.model,
            data=data,
            seeds=tuple(results),
            interval=interval,
            notes=(
                *filter(None, [clusters_note(clusters)]),
                *measuring.notes(evidence, tuned),
                *_target_note(self.settings),
                *_stopping_note(self.settings),
                *left_out,
            ),
            baselines=tuple(baselines),
            difference=chosen._difference(results, baselines, majority_baseline),
            majority_baseline=majority_baseline,
            grid=searched,
            curve=chosen._learning_curve(results) if options.curve else (),
            long=prepared.train.long_texts + prepared.dev.long_texts,
            cut=prepared.train.cut_texts + prepared.dev.cut_texts,
            longest=prepared.limits.longest,
            limit=self.limit,
        )

    def _trial(self, subfolder: str, title: str, seed: int) -> Trial:
        return Trial(
            subfolder=f"{subfolder}/seed-{seed}",
            title=title,
            settings=self.settings,
            seed=seed,
            make_model=self.make_model,
            prepared=self.prepared,
        )

    def _train_seeds(
        self, subfolder: str, seeds: Sequence[int], *, keep_best: bool = False, title: str = ""
    ) -> list[TrialResult]:
        prefix = f"{title}, " if title else ""
        trials = [
            self._trial(subfolder, f"{prefix}seed {seed} ({number} of {len(seeds)})", seed)
            for number, seed in enumerate(seeds, 1)
        ]
        return self.trials.train(trials, keep_best=keep_best)

    def _search_grid(self, options: ExperimentConfig) -> SearchResult:
        # a separate seed, so that selection by chance does not bias the reported seeds
        seed = self.settings.seed + options.seeds
        cells = cells_of(self.settings, options.search)
        trials = [
            replace(
                self._trial("grid", f"grid, cell {number} of {len(cells)}", seed),
                subfolder=f"grid/{cell_name(cell)}",
                settings=cell,
            )
            for number, cell in enumerate(cells, 1)
        ]
        return search(self.trials, trials, options.minutes)

    def _baselines(
        self, spent: float, seeds: Sequence[int]
    ) -> tuple[list[BaselineScores], list[str]]:
        """Return the baselines, read from an earlier part of the run or trained, and those skipped.

        `spent` is the training time of the seeds in seconds; `seeds` are those of the baselines on
        frozen layers, empty if these are not wanted.
        """
        path = self.folder.path / "baselines.json"
        record = read_record(path) if path.exists() else {}
        # those of a run that has more seeds now are trained with these
        if record.get("seeds") == list(seeds):
            return [BaselineScores.from_dict(baseline) for baseline in record["baselines"]], record[
                "left_out"
            ]
        tried: list[BaselineScores | SkippedBaseline | None] = []
        if seeds or self.settings.baseline:
            seconds = self.settings.baseline_seconds
            tried.append(tfidf_baseline(self.prepared, max(seconds, spent) if seconds else 0.0))
        if seeds:
            model = self.make_model(self.settings.seed)
            tried += frozen_baselines(model, self.prepared, seeds)
        baselines = [baseline for baseline in tried if isinstance(baseline, BaselineScores)]
        left_out = [str(baseline) for baseline in tried if isinstance(baseline, SkippedBaseline)]
        trained = [baseline.to_file() for baseline in baselines]
        stored = {"seeds": list(seeds), "baselines": trained, "left_out": left_out}
        write_record(path, stored)
        return baselines, left_out

    def _difference(
        self,
        results: Sequence[TrialResult],
        baselines: Sequence[BaselineScores],
        majority_baseline: tuple[str, float] | None,
    ) -> Difference | None:
        """Return the difference between the seeds and the best of the baselines."""
        best, data = best_of(baselines, majority_baseline), self.prepared.data
        if best is None:
            return None
        baseline = next((baseline for baseline in baselines if baseline.name == best[0]), None)
        ours = self._evidences("seeds", results)
        clusters = clusters_of(data.task, data.dev, ours[0])
        if baseline is None or not (baseline.evidences or baseline.name == RANDOM):
            found = difference_to_constant(data.task, data.labels, ours, best[1], clusters)
        else:
            theirs = baseline.evidences or self._evidences("random", results)
            found = difference_of(data.task, data.labels, ours, theirs, clusters)
        # the most frequent class is no rival by chance
        return of_best(found, max(1, len(baselines)))

    def _train_from_random_weights(self, seeds: Sequence[int]) -> BaselineScores:
        fresh = _RandomModelFactory(self.make_model)
        results = replace(self, make_model=fresh)._train_seeds(
            "random", seeds, title="random weights"
        )
        return BaselineScores(
            name=RANDOM,
            scores=tuple(result.scores for result in results),
            seconds=sum(result.seconds for result in results) / len(results),
            simpler=False,
        )

    def _evidences(self, subfolder: str, results: Sequence[TrialResult]) -> list[Evidence]:
        return [self.trials.evidence(f"{subfolder}/seed-{result.seed}") for result in results]

    def _learning_curve(self, results: Sequence[TrialResult]) -> tuple[CurvePoint, ...]:
        """Return the scores with fewer training rows, and last with all of them."""
        points = []
        rows = len(self.prepared.data.train)
        key = stream(Purpose.LEARNING_CURVE, self.settings.seed)
        order = permutation(rows, key)
        seeds = [result.seed for result in results[:CURVE_SEEDS]]
        for count in curve_points(rows):
            fewer = self.prepared.fewer(np.sort(order[:count]))
            part = replace(self, prepared=fewer, settings=self.settings.for_part(count, rows))
            trained = part._train_seeds(f"curve/{count}", seeds, title=f"{count} {fewer.task.unit}")
            points.append(CurvePoint(rows=count, results=tuple(trained)))
        return (*points, CurvePoint(rows=rows, results=tuple(results)))


def _target_note(settings: FinetuneSettings) -> tuple[str, ...]:
    """Return a note on an accuracy that the rows have by which a probability was chosen for it."""
    if settings.target_accuracy is None:
        return ()
    return (
        f"--target-accuracy {settings.target_accuracy:g} chose that probability by these very "
        "rows: on others, the share of right answers is below it about as often as above, and "
        "with few rows more often; evaluate measures it on rows of neither file",
    )


def _stopping_note(settings: FinetuneSettings) -> tuple[str, ...]:
    """Return a note on scores by which the epochs were chosen that they are of, if they were."""
    if not settings.patience:
        return ()
    return (
        f"--patience {settings.patience} kept the best epoch of each seed on dev: its score there "
        "is somewhat too good, because the epoch was chosen by it, and those of TF-IDF and linear "
        "models are not",
    )


@dataclass(frozen=True)
class _RandomModelFactory:
    """A picklable function from a seed to a randomly initialised model of the same config."""

    like: Callable[[int], Model]

    def __call__(self, seed: int) -> Model:
        model = self.like(seed)
        return build_model(model.config, seed=seed).to(model.device)


def curve_points(rows: int) -> list[int]:
    """Return the row counts of a learning curve but for the last: 1/2, 1/4, 1/8, ..."""
    points = [rows >> halvings for halvings in range(1, _MAX_POINTS + 1)]
    return sorted(point for point in points if point >= _MIN_CURVE_ROWS)
