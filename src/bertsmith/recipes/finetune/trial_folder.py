"""A training in a folder of its own.

The folder has log.jsonl, checkpoints while it trains, and in the end dev.json (the prediction for
each dev row and how correct it is) and result.json, which marks it as finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.core.log import say
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.formatting import format_scores
from bertsmith.recipes.finetune.settings import FinetuneConfig
from bertsmith.recipes.finetune.trial import Prepared, TrialResult, run_trial
from bertsmith.tasks.task import Measured
from bertsmith.training.run.folder import RunFolder, read_record, write_record
from bertsmith.training.tensorboard import events
from bertsmith.weights.folder import save_model

RESULT, DEV = "result.json", "dev.json"
# classes whose probabilities are kept for each dev row
_KEPT_CLASSES = 5


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training of a run: its place in the run's folder, and its inputs."""

    place: str
    title: str
    settings: FinetuneConfig
    seed: int
    make_model: Callable[[int], Model]
    prepared: Prepared


def carry_out(
    trial: Trial, run: Path, others: Sequence[TrialResult] | None, *, tensorboard: bool = False
) -> TrialResult:
    """Train and evaluate in the folder of a run; resume what was interrupted.

    The model is saved, before the result is, if it is better than those of the `others`. Raises
    what `fit` raises.
    """
    place = RunFolder(run / trial.place, part_of=RunFolder(run))
    with _watched(place, run) if tensorboard else nullcontext():
        result, measured, model = run_trial(
            trial.make_model, trial.prepared, trial.settings, trial.seed, place, trial.title
        )
    if others is not None and all(result.rank > other.rank for other in others):
        save_model(place.model, model, trial.prepared.tokenizer)
    write_record(place.path / DEV, _dev(trial.prepared, measured))
    write_record(place.path / RESULT, {"run": place.identity, **result.to_dict()})
    say(f"{trial.title}: {format_scores(result.scores)}, {result.seconds:.1f} s")
    return result


def read_result(place: RunFolder) -> TrialResult | None:
    """Return the result of a training, None if it has not ended; raises `RunFolderError`.

    A result of another run, copied in, is ignored with a message.
    """
    path = place.path / RESULT
    if not path.exists():
        return None
    content = read_record(path)
    if content.pop("run", None) != place.identity:
        say(f"{path}: belongs to another run; passed over")
        return None
    return TrialResult.from_dict(content)


def _watched(place: RunFolder, run: Path) -> AbstractContextManager[None]:
    name = place.path.relative_to(run).as_posix().replace("/", "-")
    return events(place, run / "tensorboard" / name.removeprefix("seeds-"))


def _dev(prepared: Prepared, measured: Measured) -> dict[str, Any]:
    """Return the predictions on dev as plain JSON values."""
    # an answer below the threshold is withheld, and not shown among the mistakes
    task, labels = prepared.task.tuned(measured.evidence), prepared.data.labels
    return {
        "answers": [task.record(answer, labels, _KEPT_CLASSES) for answer in measured.answers],
        "evidence": measured.evidence.tolist(),
    }
