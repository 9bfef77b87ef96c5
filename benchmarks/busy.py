"""Tokens a second of pre-training on whole cores, quiet and beside another program.

python benchmarks/busy.py            tiny, mini and small; some ten minutes on two quiet cores
python benchmarks/busy.py --quick    tiny alone, under three minutes

The same BERT is trained, full steps with AdamW, clipping and dropout 0.1, in bf16 autocast (float32
where the processor has no instructions for bf16), on the same sequences: by bertsmith with one
thread, with one a core, with one replica of one thread a core (training/local.py), and by what
changes between the two as `pretrain` does (training/parallelism.py), 64 sequences a step as
`pretrain` takes them; by transformers with one thread a core, on the batch that is fastest for it.
What changes tries both when the speed has changed, and has 15 seconds for it before the turns that
are busy; how soon `pretrain` changes is in the docs. Each waits in a process of its own and is
asked in turns, first on the machine as it is, then beside one process that keeps a core busy. The
machine has to be quiet otherwise.
Correctness: the losses after the first steps agree between bertsmith's ways within 2 %, as they
learn the same from the same batches.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from throughput.processes import Runner
from throughput.sequences import filled, tokenizer_for
from throughput.sides import Plan

SHAPES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512)}
SEQUENCES, ADAPTING_SECONDS = 64, 15.0
RIVALS_BATCHES = (8, 16, 32, 64, 128)


def main() -> None:
    """Run what the command line asks for, print the table and a line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny alone, fewer turns")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="may be repeated")
    parser.add_argument("--rounds", type=int, default=0, help="turns of each")
    parser.add_argument("--seconds", type=float, default=0.0, help="of a turn")
    asked = parser.parse_args()
    rounds = asked.rounds or (3 if asked.quick else 5)
    seconds = asked.seconds or (3.0 if asked.quick else 6.0)
    shapes = asked.shape or (["tiny"] if asked.quick else list(SHAPES))
    rows = [row for shape in shapes for row in _compared(shape, rounds, seconds)]
    cores = len(os.sched_getaffinity(0))
    table = Table(title=f"tokens/s, {cores} cores, medians of {rounds} turns of {seconds:g} s")
    for column in (
        "model",
        "trained by",
        "batch",
        "quiet",
        "of one thread",
        "busy",
        "of its quiet speed",
    ):
        table.add_column(column, justify="left" if column == "trained by" else "right")
    for row in rows:
        table.add_row(
            str(row["model"]), str(row["by"]), str(row["batch"]), f"{row['quiet']:,.0f}",
            f"{row['of_one']:.2f} x", f"{row['busy']:,.0f}", f"{row['kept']:.0%}",
        )  # fmt: skip
    Console(width=110).print(table)
    print(json.dumps({"benchmark": "busy", "cores": cores, "rows": rows}))


def _compared(shape: str, rounds: int, seconds: float) -> list[dict[str, object]]:
    data = Path(os.environ["BERTSMITH_DATA"]) if os.environ.get("BERTSMITH_DATA") else None
    cores = len(os.sched_getaffinity(0))
    layers, hidden = SHAPES[shape]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        tokenizer = tokenizer_for(data, Path(folder))
        sequences = filled(data, tokenizer, 128)
        one = Plan(
            side="bertsmith", objective="pretraining", layers=layers, hidden=hidden, dropout=0.1,
            device="cpu", threads=1, vocabulary=Path(folder),
        )  # fmt: skip
        plans = {
            "one thread": one,
            f"{cores} threads": replace(one, threads=cores),
            f"{cores} replicas": replace(one, replicas=cores),
            "either, as is faster": replace(one, threads=cores, adapts=True),
            f"transformers, {cores} threads": replace(one, side="transformers", threads=cores),
        }
        runners = {name: stack.enter_context(Runner(p, sequences)) for name, p in plans.items()}
        first = {name: runner.run(SEQUENCES, 0.0).loss for name, runner in runners.items()}
        ours = [loss for name, loss in first.items() if not name.startswith("transformers")]
        assert max(ours) < 1.02 * min(ours), first
        batches = dict.fromkeys(runners, SEQUENCES)
        for name, runner in runners.items():
            if name.startswith("transformers"):
                batches[name] = runner.best_batch(RIVALS_BATCHES, seconds / 3)
        quiet = _speeds(runners, batches, rounds, seconds)
        with _busy_core():
            _adapted(runners, batches, plans)
            busy = _speeds(runners, batches, rounds, seconds)
    return [
        {
            "model": shape,
            "by": name,
            "batch": batches[name],
            "quiet": statistics.median(quiet[name]),
            "of_one": _ratio(quiet[name], quiet["one thread"]),
            "busy": statistics.median(busy[name]),
            "kept": statistics.median(busy[name]) / statistics.median(quiet[name]),
        }
        for name in plans
    ]


def _adapted(runners: dict[str, Runner], batches: dict[str, int], plans: dict[str, Plan]) -> None:
    """Let what adapts find out that the machine is another."""
    for name, plan in plans.items():
        if plan.adapts:
            runners[name].run(batches[name], ADAPTING_SECONDS)


def _speeds(
    runners: dict[str, Runner], batches: dict[str, int], rounds: int, seconds: float
) -> dict[str, list[float]]:
    speeds: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            speeds[name].append(runner.run(batches[name], seconds).speed)
    return speeds


def _ratio(mine: list[float], others: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(mine, others, strict=True))


@contextmanager
def _busy_core() -> Iterator[None]:
    """Keep one core busy meanwhile."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_spin, args=(os.getpid(),), daemon=True)
    process.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        process.kill()
        process.join()


def _spin(parent: int) -> None:
    while os.getppid() == parent:
        for _ in range(10**6):
            pass


if __name__ == "__main__":
    main()
