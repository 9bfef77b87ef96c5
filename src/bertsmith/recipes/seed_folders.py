"""Several seeds in a run folder: each one's result, and the best one's model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from bertsmith.batches.examples import EncodedExamples
from bertsmith.errors import RunFolderError
from bertsmith.log import say
from bertsmith.models.model import Model
from bertsmith.recipes.seeds import FinetuneConfig, SeedResult, run_seed
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.run_folder import RunFolder, write_json
from bertsmith.training.tensorboard import events
from bertsmith.weights.folder import load_model, save_model


class SeedFolders:
    """The folders seeds/seed-N of a run.

    A seed that has a result.json has ended; the best of those has its model beside it, saved
    before its result, so that whenever the run is stopped nothing has to be trained again.
    """

    def __init__(
        self, run: RunFolder, config: FinetuneConfig, count: int, *, tensorboard: bool = False
    ) -> None:
        """With `tensorboard`, the log of each is written for TensorBoard too."""
        self._run = run
        self._config = config
        self._tensorboard = tensorboard
        self._seeds = range(config.seed, config.seed + count)

    def train(
        self,
        make_model: Callable[[int], Model],
        tokenizer: Tokenizer,
        train: EncodedExamples,
        dev: EncodedExamples,
    ) -> list[SeedResult]:
        """Train and measure the seeds that have no result yet; the results of all."""
        results: list[SeedResult] = []
        for number, seed in enumerate(self._seeds, 1):
            place = self._place(seed)
            result_file = place.path / "result.json"
            if result_file.exists():
                results.append(SeedResult.from_dict(read_json(result_file)))
                continue
            title = f"seed {seed} ({number} of {len(self._seeds)})"
            with self._watched(place):
                result, model = run_seed(make_model, train, dev, self._config, seed, place, title)
            if all(result.rank > other.rank for other in results):
                save_model(place.model, model, tokenizer)
            write_json(result_file, result.to_dict())
            results.append(result)
            self._tidy(results)
            say(
                f"seed {seed}: accuracy {100 * result.accuracy:.2f} %, "
                f"macro F1 {100 * result.macro_f1:.2f} %, {result.seconds:.1f} s"
            )
        # once more: a stop may have come between a result and this
        self._tidy(results)
        return results

    def move_model(self, seed: int, card: str) -> None:
        """Make a seed's model that of the run, with a card; nothing to do where that is done."""
        place = self._place(seed).model
        if place.exists():
            model, tokenizer = load_model(place)
            save_model(self._run.model, model, tokenizer, card=card)
            shutil.rmtree(place)

    def _place(self, seed: int) -> RunFolder:
        return RunFolder(self._run.path / "seeds" / f"seed-{seed}")

    def _watched(self, place: RunFolder) -> AbstractContextManager[None]:
        if not self._tensorboard:
            return nullcontext()
        return events(place, self._run.path / "tensorboard" / place.path.name)

    def _tidy(self, results: list[SeedResult]) -> None:
        """Delete the checkpoints of seeds that have ended, and all models but the best."""
        best = max(results, key=lambda result: result.rank)
        for result in results:
            place = self._place(result.seed)
            shutil.rmtree(place.checkpoints, ignore_errors=True)
            if result.seed != best.seed:
                shutil.rmtree(place.model, ignore_errors=True)


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote; `RunFolderError` if it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunFolderError("is damaged", where=path, remedy="delete it") from error
    assert isinstance(content, dict)
    return content
