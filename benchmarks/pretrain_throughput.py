"""Tokens a second of pre-training: bertsmith against transformers, side by side.

python benchmarks/pretrain_throughput.py            all tables (a quarter of an hour or more)
python benchmarks/pretrain_throughput.py --quick    4/256 only, one objective, shorter
python benchmarks/pretrain_throughput.py --shape 4/512 --table filled
python benchmarks/pretrain_throughput.py --device cuda

Both sides train the same BERT, full steps with AdamW, clipping and dropout 0.1, in bf16 autocast
(float32 where there are no instructions for bf16), on the same sequences with masks drawn anew;
each in a process of its own, in turns, at the batch that is best for it. transformers: its models
with sdpa, its collator, what its Trainer does by default. bertsmith: its own batches, objective and
optimiser; its vocabulary projection runs on the masked positions only, and the last layer where
something is read. Table "filled": every sequence has 128 tokens, nobody pads. Table "text": a line
a sequence as it comes, tokens of text counted. Real text is read from BERTSMITH_DATA; without it,
invented text of like lengths.

The utilisation is that of the best matrix product measured in the same run, from the operations
that the result needs (network/flops.py).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.peak import measure_peak
from throughput.processes import Runner, Stretch
from throughput.sequences import Sequences, as_it_comes, filled, text_names, tokenizer_for
from throughput.sides import Objective, Plan

_BATCHES = {"cpu": (8, 16, 32, 64, 128), "cuda": (32, 64, 128, 256)}


@dataclass(frozen=True)
class Row:
    """One comparison, as it stands in the table."""

    table: str
    text: str
    shape: str
    objective: str
    rival: str
    ours: float
    theirs: float
    ratio: float
    batches: tuple[int, int]
    padding: float
    utilisation: float
    peak: float
    precision: str


def main() -> None:
    """Run what the command line asks for, print the tables and a line of JSON."""
    asked = _arguments()
    torch.set_num_threads(asked.threads)
    data = Path(os.environ["BERTSMITH_DATA"]) if os.environ.get("BERTSMITH_DATA") else None
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = tokenizer_for(data, Path(folder))
        for table, shape, text in _comparisons(asked, data):
            sequences = _sequences(data, tokenizer, table, text, asked.longest)
            for objective in asked.objective:
                rows += _compare(asked, Path(folder), table, shape, objective, sequences)
                Console(stderr=True).print(_line(rows[-1]))
    _show(rows, asked, data)
    print(json.dumps({"benchmark": "pretrain_throughput", "rows": [asdict(row) for row in rows]}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="under five minutes")
    parser.add_argument("--shape", action="append", help="layers/hidden; may be repeated")
    parser.add_argument("--table", choices=("filled", "text"), help="only this table")
    parser.add_argument("--text", action="append", help="only these texts as they come")
    parser.add_argument(
        "--objective", action="append", choices=("masked_lm", "pretraining"),
        help="masked LM alone, or with next sentence",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=int, action="append",
        help="a number of sequences a batch; each side takes its best of those named",
    )  # fmt: skip
    parser.add_argument("--longest", type=int, default=128, help="tokens a sequence")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=0, help="turns of both sides")
    parser.add_argument("--seconds", type=float, default=0.0, help="of a turn")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    asked = parser.parse_args()
    on_cuda = asked.device == "cuda"
    asked.shape = asked.shape or (
        ["12/768"] if on_cuda else ["4/256"] if asked.quick else ["4/256", "4/512", "12/768"]
    )
    asked.objective = asked.objective or (
        ["masked_lm"] if asked.quick else ["masked_lm", "pretraining"]
    )
    asked.rounds = asked.rounds or (3 if asked.quick else 5)
    asked.seconds = asked.seconds or (2.0 if asked.quick else 4.0)
    return asked


def _comparisons(asked: argparse.Namespace, data: Path | None) -> list[tuple[str, str, str]]:
    """Table, shape and text of every comparison; text as it comes for the smallest shape."""
    wanted = [("filled", shape, "") for shape in asked.shape]
    names = text_names(data)[:1] if asked.quick else text_names(data)
    wanted += [("text", asked.shape[0], text) for text in asked.text or names]
    return [item for item in wanted if asked.table in (None, item[0])]


def _sequences(
    data: Path | None, tokenizer: Tokenizer, table: str, text: str, longest: int
) -> Sequences:
    if table == "filled":
        return filled(data, tokenizer, longest)
    return as_it_comes(data, tokenizer, longest, text)


def _compare(
    asked: argparse.Namespace,
    vocabulary: Path,
    table: str,
    shape: str,
    objective: Objective,
    sequences: Sequences,
) -> list[Row]:
    layers, hidden = map(int, shape.split("/"))
    plan = Plan(
        side="bertsmith", objective=objective, layers=layers, hidden=hidden,
        dropout=asked.dropout, device=asked.device, threads=asked.threads, vocabulary=vocabulary,
    )  # fmt: skip
    plans = [plan, *_rivals(plan)]
    with ExitStack() as stack:
        runners = [stack.enter_context(Runner(item, sequences)) for item in plans]
        batches = []
        for item, runner in zip(plans, runners, strict=True):
            candidates = asked.batch or _BATCHES[asked.device]
            batches.append(runner.best_batch(candidates, asked.seconds / 3))
            Console(stderr=True).print(f"{_name(item)}: best batch {batches[-1]}", highlight=False)
        turns: list[list[Stretch]] = [[] for _ in runners]
        peaks = []
        for _ in range(asked.rounds):
            peaks.append(measure_peak(plan.precision, torch.device(asked.device), seconds=0.6))
            for mine, runner, batch in zip(turns, runners, batches, strict=True):
                mine.append(runner.run(batch, asked.seconds))
    ours, *others = turns
    rows = []
    for rival, theirs, batch in zip(plans[1:], others, batches[1:], strict=True):
        pairs = zip(ours, theirs, strict=True)
        rows.append(
            Row(
                table=table,
                text=sequences.name,
                shape=shape,
                objective=objective,
                rival=_name(rival).removeprefix("transformers "),
                ours=statistics.median(our.speed for our in ours),
                theirs=statistics.median(their.speed for their in theirs),
                ratio=statistics.median(mine.speed / its.speed for mine, its in pairs),
                batches=(batches[0], batch),
                padding=1 - sum(t.tokens for t in theirs) / sum(t.places for t in theirs),
                utilisation=statistics.median(t.flops / t.seconds for t in ours) / max(peaks),
                peak=max(peaks),
                precision=plan.precision,
            )
        )
    return rows


def _rivals(plan: Plan) -> list[Plan]:
    rival = replace(plan, side="transformers")
    if plan.device == "cpu":
        return [rival]
    return [rival, replace(rival, attention="eager"), replace(rival, compiled=True)]


def _name(plan: Plan) -> str:
    if plan.side == "bertsmith":
        return plan.side
    return f"{plan.side} {plan.attention}{' compiled' if plan.compiled else ''}"


def _show(rows: list[Row], asked: argparse.Namespace, data: Path | None) -> None:
    where = torch.cuda.get_device_name() if asked.device == "cuda" else f"{asked.threads} threads"
    table = Table(
        title=f"tokens/s, {rows[0].precision}, {where}, {'real' if data else 'invented'} text, "
        f"dropout {asked.dropout:g}, medians of {asked.rounds} turns of {asked.seconds:g} s"
    )
    for column in (
        "layers/hidden", "sequences", "objective", "transformers", "batch", "padding",
        "bertsmith", "batch", "padding", "ratio", "MFU",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column in ("sequences",) else "right")
    for row in rows:
        table.add_row(*_cells(row))
    Console(width=140).print(table)
    for row in rows[:1]:
        print(f"largest speed of a {row.precision} product: {row.peak / 1e12:.2f} TFLOP/s")


def _cells(row: Row) -> tuple[str, ...]:
    rival = f"{row.theirs:,.0f} ({row.rival})"
    return (
        row.shape, row.text, row.objective, rival, str(row.batches[1]), f"{row.padding:.0%}",
        f"{row.ours:,.0f}", str(row.batches[0]), "0%", f"{row.ratio:.2f}",
        f"{row.utilisation:.0%}",
    )  # fmt: skip


def _line(row: Row) -> dict[str, Any]:
    return asdict(row)


if __name__ == "__main__":
    main()
