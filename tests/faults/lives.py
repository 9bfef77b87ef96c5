"""Trainings that are led in other processes, killed and resumed, and what is left of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bertsmith.training.checkpoints import read_manifest
from forking import Forked

TRAINEE = Path(__file__).with_name("trainee.py")
INTERVAL = 5
"""Steps between two checkpoints, as trainee.py has them."""


@dataclass(frozen=True)
class Ended:
    """How a life ended."""

    status: int
    """The exit status, or the signal below zero."""
    alone: bool
    """Whether no process was left of it."""


class Trainee:
    """The process that leads one life after the other."""

    def __init__(self, process: subprocess.Popen[str], store: Path) -> None:
        self._process = process
        self._store = store

    def live(self, run: Run, **life: object) -> Ended:
        """Train in the run's folder until the end, or the violent one that `life` describes."""
        given = {"store": str(self._store), "run": str(run.folder), "diary": str(run.diary_path)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(given | {"steps": run.steps} | life) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


@contextmanager
def trainee(store: Path) -> Iterator[Trainee]:
    """A process that has everything imported; it ends when nobody tells it anything any more."""
    paths = [str(TRAINEE.parents[1]), os.environ.get("PYTHONPATH", "")]
    process = Forked[str](
        [sys.executable, str(TRAINEE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    try:
        yield Trainee(process, store)
    finally:
        process.communicate()


@dataclass(frozen=True)
class Run:
    """A run folder, and the diary of the lives that were spent on it."""

    folder: Path
    steps: int

    @property
    def diary_path(self) -> Path:
        return self.folder.with_suffix(".diary")

    @property
    def checkpoints(self) -> list[Path]:
        return sorted((self.folder / "checkpoints").glob("step-*"))

    def lives(self) -> list[list[dict[str, Any]]]:
        """The lines of the diary, a list for each life that came as far as to begin."""
        lives: list[list[dict[str, Any]]] = []
        for text in self.diary_path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "began" in line:
                lives.append([])
            lives[-1].append(line)
        return lives

    def shown(self) -> list[str]:
        """What the model was shown, batch by batch, where what was lost does not count."""
        shown: list[str] = []
        for life in self.lives():
            del shown[2 * life[0]["began"] :]  # two batches a step
            shown += [line["shown"] for line in life if "shown" in line]
        return shown

    def log(self) -> str:
        return (self.folder / "log.jsonl").read_text(encoding="utf-8")

    def hashes(self) -> dict[str, str]:
        """SHA-256 of all files of the last checkpoint."""
        manifest = read_manifest(self.checkpoints[-1] / "manifest.json")
        return {name: record.sha256 for name, record in manifest.records.items()}

    def check_losses(self) -> None:
        """At most what came after the last checkpoint but one that was begun has been lost."""
        lives = self.lives()
        for life, following in pairwise(lives):
            began = life[0]["began"]
            saved = [began, *(line["saving"] for line in life if "saving" in line)]
            gaps = [after - before for before, after in pairwise(saved)]
            assert max(gaps, default=0) <= INTERVAL
            reached = began + sum("shown" in line for line in life) // 2
            assert reached - saved[-1] <= INTERVAL
            # the last may have been in hand; the one before is on the disk by then
            assert following[0]["began"] in saved[-2:]
