"""The trainings of a run in its folder: each one's result, and the models worth keeping.

    seeds/seed-0/                    a seed with the settings of the run
    grid/rate-2e-05-batch-32-.../    a cell of the grid
    curve/256-seed-0/                a seed with fewer examples
    random/seed-0/                   a seed of the same network from random weights

Each holds log.jsonl, while it trains its checkpoints, and in the end dev.json, what was said of
each dev row and how right that was, and result.json, which says that it has ended.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.errors import RunFolderError
from bertsmith.log import say
from bertsmith.models.model import Model
from bertsmith.recipes.finetune_settings import FinetuneConfig
from bertsmith.recipes.telling import told_scores
from bertsmith.recipes.trial import Measured, Prepared, TrialResult, run_trial
from bertsmith.training.run_folder import RunFolder, write_json
from bertsmith.training.tensorboard import events
from bertsmith.weights.folder import load_model, save_model

RESULT, DEV = "result.json", "dev.json"
# classes whose probabilities are kept of each dev row
_KEPT_CLASSES = 5


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training of a run: where it lies in the run's folder, and what it is made of."""

    place: str
    title: str
    settings: FinetuneConfig
    seed: int
    make_model: Callable[[int], Model]
    prepared: Prepared


class Trials:
    """The trainings of a run; those that have a result are not made again.

    Of those whose models are wanted, the best so far has its model beside its result, saved before
    it, so that whenever the run is stopped nothing has to be trained again.
    """

    def __init__(self, run: RunFolder, *, tensorboard: bool = False) -> None:
        """With `tensorboard`, the log of each is written for TensorBoard too."""
        self._run = run
        self._tensorboard = tensorboard

    def result(self, trial: Trial) -> TrialResult | None:
        """What a training came to, None if it has not ended."""
        file = self.folder(trial.place).path / RESULT
        return TrialResult.from_dict(read_json(file)) if file.exists() else None

    def train(self, trials: Sequence[Trial], *, keep_best: bool = False) -> list[TrialResult]:
        """Train and measure those that have no result yet; the results of all.

        With `keep_best` the model of the best of them is kept.
        """
        results: list[TrialResult] = []
        for number, trial in enumerate(trials):
            result = self.result(trial)
            if result is None:
                result = self._train(trial, results if keep_best else None)
            results.append(result)
            # also where there was a result: a stop may have come between it and this
            self._tidy(trials[: number + 1], results, keep_best=keep_best)
        return results

    def move_model(self, place: str, card: str) -> None:
        """Make a training's model that of the run, with a card; nothing where that is done."""
        model_place = self.folder(place).model
        if model_place.exists():
            model, tokenizer = load_model(model_place)
            save_model(self._run.model, model, tokenizer, card=card)
            shutil.rmtree(model_place)

    def folder(self, place: str) -> RunFolder:
        """The folder of a training."""
        return RunFolder(self._run.path / place)

    def _train(self, trial: Trial, others: Sequence[TrialResult] | None) -> TrialResult:
        """Train; the model is saved if it is better than those of the others."""
        place = self.folder(trial.place)
        with self._watched(place):
            result, measured, model = run_trial(
                trial.make_model, trial.prepared, trial.settings, trial.seed, place, trial.title
            )
        if others is not None and all(result.rank > other.rank for other in others):
            save_model(place.model, model, trial.prepared.tokenizer)
        write_json(place.path / DEV, _dev(trial.prepared, measured))
        write_json(place.path / RESULT, result.to_dict())
        say(f"{trial.title}: {told_scores(result.scores)}, {result.seconds:.1f} s")
        return result

    def _watched(self, place: RunFolder) -> AbstractContextManager[None]:
        if not self._tensorboard:
            return nullcontext()
        name = place.path.relative_to(self._run.path).as_posix().replace("/", "-")
        return events(place, self._run.path / "tensorboard" / name.removeprefix("seeds-"))

    def _tidy(
        self, trials: Sequence[Trial], results: Sequence[TrialResult], *, keep_best: bool
    ) -> None:
        """Delete the checkpoints of trials that have ended, and all models but the best."""
        best = max(range(len(results)), key=lambda number: results[number].rank)
        for number, trial in enumerate(trials):
            place = self.folder(trial.place)
            shutil.rmtree(place.checkpoints, ignore_errors=True)
            if number != best or not keep_best:
                shutil.rmtree(place.model, ignore_errors=True)


def _dev(prepared: Prepared, measured: Measured) -> dict[str, Any]:
    """What was said of dev, as plain JSON values."""
    task, labels = prepared.task, prepared.data.labels
    return {
        "answers": [task.record(answer, labels, _KEPT_CLASSES) for answer in measured.answers],
        "evidence": measured.evidence.tolist(),
    }


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote; `RunFolderError` if it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError("is damaged", where=path, remedy="delete it") from error
    assert isinstance(content, dict)
    return content
