"""One cell with one seed: pre-trained, fine-tuned on its tasks, every stage's result kept.

    OUT/vocab, store, tasks      made once, for all cells
    OUT/cells/CELL-seed-N.json   the results: {"cell", "seed", "pretraining", "tasks"}
    OUT/work/CELL-seed-N         the runs of an unfinished cell; removed when it has ended

A cell that several experiments have is trained once: its name is a hash of all that determines it.
Stages that ended are not made again, and a pre-training that was killed goes on from its last
checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from ablations.cells import Cell
from ablations.position import cls_at
from ablations.tasks import TASKS, FinetuneTask, Rows, write_tasks
from bertsmith.cli.command import read_arguments
from bertsmith.cli.commands import COMMANDS
from bertsmith.core.config import Config
from bertsmith.core.files import write_json
from bertsmith.recipes.finetune.config import FinetuneConfig
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.recipes.pretrain.config import PretrainConfig
from bertsmith.recipes.pretrain.recipe import pretrain
from bertsmith.recipes.pretrain.resolving import store_hash
from bertsmith.store.store import INDEX


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the experiments are."""

    steps: int
    tokens_per_batch: int
    vocabulary: int
    rows: Rows


FULL = Scale(steps=300, tokens_per_batch=2048, vocabulary=4000, rows=Rows(train=2000, dev=1500))
QUICK = Scale(steps=8, tokens_per_batch=512, vocabulary=1000, rows=Rows(train=64, dev=64))

Results = dict[str, Any]


class Laboratory:
    """The folder in which cells are trained and their results kept."""

    def __init__(self, out: Path, scale: Scale) -> None:
        self.out = out
        self.scale = scale

    def prepare(self, corpus: str, data: Path) -> None:
        """Make vocabulary, store and the tasks' files, unless they are there."""
        vocabulary, store = self.out / "vocab", self.out / "store"
        if not (vocabulary / "vocab.txt").exists():
            # a vocabulary that was being written when its process was killed
            shutil.rmtree(vocabulary, ignore_errors=True)
            size = self.scale.vocabulary
            run_verb("vocab learn", corpus, "--out", vocabulary, "--size", size)
        # a store that is unfinished goes on
        if not (store / INDEX).exists():
            run_verb("prepare", corpus, "--vocab", vocabulary, "--out", store)
        write_tasks(data, self.out / "tasks", self.scale.rows)

    def results(self, cell: Cell, seed: int, tasks: tuple[str, ...]) -> Results | None:
        """Return the kept results of a cell, None if a stage of it has not ended."""
        kept = self._kept(cell, seed)
        done = "pretraining" in kept and all(_has(kept, task) for task in tasks)
        return kept if done else None

    def train(self, cell: Cell, seed: int, tasks: tuple[str, ...]) -> Results:
        """Make the stages of a cell that have not ended, and return its results."""
        found = self.results(cell, seed, tasks)
        if found is not None:
            return found
        kept = self._kept(cell, seed)
        work = self.out / "work" / self._name(cell, seed)
        with cls_at(cell.cls):
            # tasks that are asked for later need the model again, which was removed with the work
            if "pretraining" not in kept or not (work / "run" / "model").exists():
                kept["pretraining"] = self.pretrain(cell, seed, work / "run")
                self._keep(cell, seed, kept)
            for task in tasks:
                if not _has(kept, task):
                    scores = self.finetune(cell, seed, task, work)
                    kept["tasks"][task] = {"task": _as_json(TASKS[task]), "scores": scores}
                    self._keep(cell, seed, kept)
        shutil.rmtree(work)
        return kept

    def pretrain_config(self, cell: Cell, seed: int, run: Path) -> PretrainConfig:
        """Return the command line's config of a cell."""
        arguments = [
            self.out / "store", "--out", run, "--model", cell.size, "--steps", self.steps(cell),
            "--recipe", "quick",
            "--max-length", 64, "--tokens-per-batch", self.scale.tokens_per_batch,
            "--masking.probability", 0.15, "--measurements", 0, "--seed", seed, "--force",
            *cell.options,
        ]  # fmt: skip
        config = config_of("pretrain", arguments)
        assert isinstance(config, PretrainConfig)
        return config

    def pretrain(self, cell: Cell, seed: int, run: Path) -> Results:
        """Pre-train a cell, or go on; returns the held-out figures."""
        outcome = pretrain(self.pretrain_config(cell, seed, run))
        return {**outcome.held_out, "seconds": outcome.state.seconds}

    def same(self, cell: Cell, other: Cell) -> bool:
        """Return whether two cells are the same training, whatever they are called."""
        return self._identity(cell) == self._identity(other)

    def steps(self, cell: Cell) -> int:
        """Return the steps of a cell's pre-training."""
        return max(1, round(cell.steps * self.scale.steps))

    def finetune(self, cell: Cell, seed: int, name: str, work: Path) -> Results:
        """Fine-tune a cell's model on a task, or go on; returns its scores on dev."""
        task, layers = TASKS[name], cell.size.split("/")[0]
        options = [option.replace("{layers}", layers) for option in task.options]
        files = self.out / "tasks"
        arguments = [
            work / "run" / "model", files / task.train, "--dev", files / task.dev,
            "--out", work / name, "--seeds", 1, "--seed", seed, "--side-by-side", 1,
            "--no-baseline", *options,
        ]  # fmt: skip
        config = config_of("finetune", arguments)
        assert isinstance(config, FinetuneConfig)
        return dict(finetune(config).best.scores)

    def _kept(self, cell: Cell, seed: int) -> Results:
        file = self._file(cell, seed)
        if not file.exists():
            return {"cell": self._identity(cell), "seed": seed, "tasks": {}}
        return cast("Results", json.loads(file.read_text(encoding="utf-8")))

    def _keep(self, cell: Cell, seed: int, results: Results) -> None:
        file = self._file(cell, seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        # replaced in one go, so that a kill leaves the old or the new one
        write_json(file, results)

    def _file(self, cell: Cell, seed: int) -> Path:
        return self.out / "cells" / f"{self._name(cell, seed)}.json"

    def _name(self, cell: Cell, seed: int) -> str:
        text = json.dumps(self._identity(cell), sort_keys=True)
        return f"{hashlib.sha256(text.encode()).hexdigest()[:12]}-seed-{seed}"

    def _identity(self, cell: Cell) -> Mapping[str, Any]:
        """Return all that determines a cell's results but its seed: not what it is called."""
        config = self.pretrain_config(cell, 0, self.out)
        return {
            "settings": config.to_dict()["settings"],
            "size": cell.size,
            "steps": self.steps(cell),
            "cls": cell.cls,
            "scale": asdict(self.scale),
            "store": store_hash(self.out / "store"),
        }


def _has(kept: Results, task: str) -> bool:
    """Return whether results have a task's scores, with its settings as they are now."""
    return bool(kept["tasks"].get(task, {}).get("task") == _as_json(TASKS[task]))


def _as_json(task: FinetuneTask) -> Results:
    """Return a task's settings as they come back from a file."""
    return cast("Results", json.loads(json.dumps(asdict(task))))


def config_of(verb: str, arguments: Sequence[object]) -> Config:
    """Return the config that the command line makes of arguments."""
    return read_arguments(verb, COMMANDS[verb], [str(argument) for argument in arguments])


def run_verb(verb: str, *arguments: object) -> None:
    """Run a verb of the command line."""
    COMMANDS[verb].run(config_of(verb, arguments))
