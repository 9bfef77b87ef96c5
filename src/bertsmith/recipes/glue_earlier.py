"""What earlier calls left in a folder of GLUE's suite: the tasks that this one does not name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.errors import RunFolderError
from bertsmith.evaluation.submission import FILES, Predictions, read_submission
from bertsmith.text.glue import TASKS
from bertsmith.training.run_folder import RunFolder
from bertsmith.untrusted import read_json

MATCHED, MISMATCHED = "MNLI", "MNLI-mm"
DIAGNOSTIC = "AX"
"""What the model of MNLI answers too."""
RESULTS = "results.json"
"""The file of all scores."""

_LARGEST = 2**20

Score = tuple[float, float | None]


@dataclass(frozen=True)
class Earlier:
    """Scores and answers of tasks whose runs lie in the folder."""

    scores: dict[str, dict[str, Score]]
    """Mean and spread, in shares of 1, by task and score."""
    answers: dict[str, Predictions]
    """By the leaderboard's name of each file."""


def read_earlier(out: Path, model_hash: str, *, without: Set[str]) -> Earlier:
    """What is kept in `out` of runs from the model with that hash, `without` some tasks.

    A row of the table is of one model: what belongs to another is left behind. So is what cannot
    be read, as naming its task brings it back.
    """
    tasks = set(_tasks_of(out, model_hash)) - without
    if MATCHED in tasks:
        tasks |= {MISMATCHED, DIAGNOSTIC}
    files = {file for file, (task, _) in FILES.items() if task.name in tasks}
    try:
        results = read_json(out / RESULTS, RunFolderError, largest=_LARGEST)
        scores = {name: _scores(found) for name, found in results.items() if name in tasks}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Earlier({}, {})
    answers = {file: rows for file, rows in read_submission(out).items() if file in files}
    return Earlier(scores, answers)


def _scores(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Score]:
    scores: dict[str, Score] = {}
    for name, each in found.items():
        mean, spread = each["mean"], each["spread"]
        scores[name] = (float(mean), None if spread is None else float(spread))
    return scores


def _tasks_of(out: Path, model_hash: str) -> Iterator[str]:
    for name in TASKS:
        try:
            settings = RunFolder(out / name).settings("finetune")
        except RunFolderError:
            continue
        if settings and settings.get("model_hash") == model_hash:
            yield name
