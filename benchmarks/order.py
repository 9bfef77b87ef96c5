"""What is order worth? One small BERT with learned positions, sinusoids and none.

    python benchmarks/order.py books/ --out order

learns a vocabulary, prepares a store and trains each for as many steps on the same batches, through
the command line; a run that is there already is not made again. docs/what-is-order-worth.md tells
what came of it. `--quick` trains each for 60 steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

POSITIONS = ("learned", "sinusoidal", "none")
_MASKED, _NEXT = "masked_lm", "next_sentence"
_WIDE = 46


def main() -> None:
    """Train what is missing, print the table and the curves, and one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", help="files or folders of text")
    parser.add_argument("--out", type=Path, required=True, help="folder for store and runs")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="60 steps each")
    asked = parser.parse_args()
    steps = 60 if asked.quick else asked.steps
    prepare(asked.corpus, asked.out)
    runs = {
        kind: [train(asked.out, kind, seed, asked.model, steps) for seed in range(asked.seeds)]
        for kind in POSITIONS
    }
    figures = {kind: result(folders) for kind, folders in runs.items()}
    curves = {kind: curve(folders[0]) for kind, folders in runs.items()}
    show(figures, curves)
    print(json.dumps({"steps": steps, "seeds": asked.seeds, "held_out": figures, "curves": curves}))


def prepare(corpus: str, out: Path) -> None:
    """A vocabulary of 8,000 pieces and a store, unless they are there."""
    if not (out / "vocab").exists():
        bertsmith("vocab", "learn", corpus, "--out", out / "vocab", "--size", 8000)
    if not (out / "store").exists():
        bertsmith("prepare", corpus, "--vocab", out / "vocab", "--out", out / "store")


def train(out: Path, kind: str, seed: int, model: str, steps: int) -> Path:
    """The folder of a run; the recipe's own start would give positions, so all start at random."""
    folder = out / f"run-{kind}-{seed}"
    if not (folder / "result.json").exists():
        bertsmith(
            "pretrain", out / "store", "--out", folder, "--model", model, "--steps", steps,
            "--recipe", "quick", "--initialisation", "random", "--positions", kind,
            "--sequences", "next_sentence", "--max-length", 128, "--seed", seed,
        )  # fmt: skip
    return folder


def bertsmith(*words: object) -> None:
    """One call of the command."""
    subprocess.run([sys.executable, "-m", "bertsmith", *map(str, words)], check=True)


def result(folders: list[Path]) -> dict[str, float]:
    """Held-out figures, the mean over seeds, and their spread."""
    each = [json.loads((folder / "result.json").read_text())["held_out"] for folder in folders]
    names = [f"{_MASKED}_loss", f"{_MASKED}_accuracy", f"{_NEXT}_loss", f"{_NEXT}_accuracy"]
    means = {name: mean(one[name] for one in each) for name in names}
    spread = [one[names[0]] for one in each]
    return means | {f"{_MASKED}_loss_spread": max(spread) - min(spread)}


def curve(folder: Path) -> list[tuple[int, float]]:
    """Steps and the held-out masked-LM loss there."""
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()
    ]
    name = f"held_out_{_MASKED}_loss"
    return [(line["step"], line[name]) for line in lines if name in line]


def show(figures: dict[str, dict[str, float]], curves: dict[str, list[tuple[int, float]]]) -> None:
    """The table, and a bar a step for each loss: the shorter, the more was learned."""
    console = Console()
    table = Table("positions", "masked LM loss", "right", "next sentence loss", "right")
    for kind, found in figures.items():
        table.add_row(
            kind,
            f"{found[f'{_MASKED}_loss']:.3f}",
            f"{100 * found[f'{_MASKED}_accuracy']:.1f} %",
            f"{found[f'{_NEXT}_loss']:.3f}",
            f"{100 * found[f'{_NEXT}_accuracy']:.1f} %",
        )
    console.print(table)
    losses = [loss for points in curves.values() for _, loss in points]
    low, high = min(losses), max(losses)
    for number in range(min(map(len, curves.values()))):
        for kind, points in curves.items():
            step, loss = points[number]
            bar = "#" * (1 + round((_WIDE - 1) * (loss - low) / max(high - low, 1e-9)))
            console.print(f"{step:>6} {kind:<11}{bar} {loss:.2f}", highlight=False)


if __name__ == "__main__":
    main()
