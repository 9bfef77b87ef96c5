"""The trainings of a run in its folder: their results, and the models to keep.

    seeds/seed-0/                    a seed with the settings of the run
    grid/rate-2e-05-batch-32-.../    a cell of the grid
    curve/256-seed-0/                a seed with fewer examples
    random/seed-0/                   a seed of the same network from random weights

trial_folder.py describes their contents. They are trained one after the other here, or in parallel
in worker processes (parallel.py), with identical results bit for bit.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from bertsmith.recipes.finetune.parallel import Trainers
from bertsmith.recipes.finetune.trial import TrialResult
from bertsmith.recipes.finetune.trial_folder import Trial, carry_out, read_result
from bertsmith.training.run.folder import RunFolder
from bertsmith.weights.folder import load_model, save_model


class Trials:
    """The trainings of a run; those that have a result are not repeated.

    With `keep_best`, the best model so far is saved beside its result, and before it, so that
    nothing has to be trained again whenever the run is interrupted.
    """

    def __init__(
        self, run: RunFolder, *, trainers: Trainers | None = None, tensorboard: bool = False
    ) -> None:
        """With `trainers`, train several at once.

        With `tensorboard`, the log of each is written for TensorBoard too.
        """
        self._run = run
        self._trainers = trainers
        self._tensorboard = tensorboard

    @property
    def at_once(self) -> int:
        """Return the number of trainings at once."""
        return 1 if self._trainers is None else self._trainers.at_once

    def result(self, trial: Trial) -> TrialResult | None:
        """Return the result of a training, None if it has not ended."""
        return read_result(self.folder(trial.place))

    def train(self, trials: Sequence[Trial], *, keep_best: bool = False) -> list[TrialResult]:
        """Train and evaluate those that have no result yet, and return the results of all.

        With `keep_best` the model of the best of them is kept.
        """
        results: dict[str, TrialResult] = {}
        for trial in trials:
            if (known := self.result(trial)) is not None:
                results[trial.place] = known
        # finished ones too: the run may have been interrupted between result and cleanup
        self._tidy(trials, results, keep_best=keep_best)

        def ended(trial: Trial, result: TrialResult) -> None:
            results[trial.place] = result
            self._tidy(trials, results, keep_best=keep_best)

        def others() -> list[TrialResult] | None:
            return list(results.values()) if keep_best else None

        left = [trial for trial in trials if trial.place not in results]
        if self._trainers is None:
            for trial in left:
                ended(trial, self._carry_out(trial, others()))
        elif left:
            self._trainers.train(left, others, ended)
        return [results[trial.place] for trial in trials]

    def move_model(self, place: str, card: str) -> None:
        """Move a training's model to the run, with a card; do nothing if that is done."""
        model_place = self.folder(place).model
        # deletion takes several steps: a partly deleted folder must not pass for a model
        gone = model_place.with_name("model.moved")
        if model_place.exists():
            model, tokenizer = load_model(model_place)
            save_model(self._run.model, model, tokenizer, card=card)
            shutil.rmtree(gone, ignore_errors=True)
            model_place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def folder(self, place: str) -> RunFolder:
        """Return the folder of a training."""
        return RunFolder(self._run.path / place, part_of=self._run)

    def _carry_out(self, trial: Trial, others: Sequence[TrialResult] | None) -> TrialResult:
        return carry_out(trial, self._run.path, others, tensorboard=self._tensorboard)

    def _tidy(
        self, trials: Sequence[Trial], results: Mapping[str, TrialResult], *, keep_best: bool
    ) -> None:
        """Delete the checkpoints of finished trials, and all models but the best."""
        best = max(results, key=lambda place: results[place].rank, default="")
        for trial in trials:
            if trial.place in results:
                place = self.folder(trial.place)
                shutil.rmtree(place.checkpoints, ignore_errors=True)
                if trial.place != best or not keep_best:
                    shutil.rmtree(place.model, ignore_errors=True)
