"""What is learned in a minute: run_mlm's recipe in `transformers` against our recipe `quick`.

    BERTSMITH_DATA=data python benchmarks/learning_per_minute.py [--out results] [--quick]

The same 4/256 BERT (4 heads, 1,024 wide inside), vocabulary (bert-base-uncased), novels (90 to
learn from, 5 held out whole), cores. The rival: AdamW at the best of some rates, linear decay, its
collator, full blocks of 128 tokens, batches of 32 or 16 of them, dropout 0.1, bf16 autocast.
Both are judged by one referee, on the rival's ground: the rival's blocks of the held-out novels,
masked once by its collator, in its model class, in float32, from the folder that ours saves.

The arms select:RATE (a quarter of the rival's minutes, to find its best rate), rival:RATE and
quick:MINUTES are kept in the folder --out as they end, so a call that was interrupted goes on where
it stopped, and --arm runs one of them; --quick without a folder keeps nothing. --by-steps counts
the minutes in tokens at speeds that --measure found on a quiet machine, for arms that train on a
busy one.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import torch

from learning.arms import Arm, Curve, train_quick, train_rival
from learning.clock import Clock
from learning.referee import Referee
from learning.rival import BATCH
from learning.showing import draw, figures, table
from learning.speeds import measure, speeds
from learning.text import novels

RATES = ("5e-5", "1e-4", "5e-4", "1e-3", "5e-4x16")
"""The rival's learning rates; x16 for batches of 16 blocks in place of 32."""
SELECTION = 0.25
"""Share of the rival's minutes that each rate is tried for."""


def main() -> None:
    """Run what the command line asks for, in a folder that is kept or not."""
    options = parse()
    if options.out is not None:
        compare(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.out = Path(folder)
        compare(options)


def compare(options: argparse.Namespace) -> None:
    """Run what is missing in the folder, and show all that it has."""
    torch.set_num_threads(options.threads)
    text = novels(options.data, options.out)
    vocabulary = options.data / "vocab" / "bert-base-uncased-vocab.txt"
    if options.measure:
        measure(options.out, text, vocabulary, options.threads)
        return
    judge = Referee(text, vocabulary, 200 if options.quick else 1000)
    curves: list[Curve] = []

    def run(arm: Arm) -> Curve:
        clock = clock_for(arm, options)
        kept = options.out / "arms"
        # what was trained by the other clock is taken too, and the table tells which it was
        curve = Curve.load(kept, arm.name, "wall") or Curve.load(kept, arm.name, "steps")
        if curve is None:
            train = train_rival if arm.side == "rival" else train_quick
            curve = train(arm, clock, text, vocabulary, judge, options.threads)
            curve.save(options.out / "arms")
        curves.append(curve)
        return curve

    if options.arm:
        run(arm_named(options.arm, options))
        return
    tried = [run(arm_named(f"select:{rate}", options)) for rate in options.rates]
    best = min(tried, key=lambda curve: curve.loss)
    run(arm_named(best.arm.name.replace("select", "rival"), options))
    for minutes in options.minutes_quick:
        run(arm_named(f"quick:{minutes:g}", options))
    table(curves)
    draw(curves, options.out / "learning_per_minute.png")
    print(json.dumps(figures(curves)))


def arm_named(name: str, options: argparse.Namespace) -> Arm:
    """The arm that a name stands for."""
    kind, _, value = name.partition(":")
    if kind == "quick":
        return Arm(side="quick", minutes=float(value), name=name)
    minutes = options.minutes_rival * (SELECTION if kind == "select" else 1)
    rate, _, batch = value.partition("x")
    return Arm(
        side="rival", minutes=minutes, rate=float(rate), batch=int(batch or BATCH), name=name
    )


def clock_for(arm: Arm, options: argparse.Namespace) -> Clock:
    """The wall's clock, or that of tokens at the measured speed."""
    if not options.by_steps:
        return Clock(minutes=arm.minutes)
    return Clock(minutes=arm.minutes, tokens_per_second=speeds(options.out)[arm.side])


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, help="folder of the stores, the arms and the figure")
    add("--data", type=Path, default=os.environ.get("BERTSMITH_DATA"), help="BERTSMITH_DATA")
    add("--minutes-rival", type=float, default=20.0)
    add("--minutes-quick", type=lambda text: [float(part) for part in text.split(",")],
        default=[2.0, 10.0])  # fmt: skip
    add("--rates", type=lambda text: text.split(","), default=list(RATES))
    add("--threads", type=int, default=2)
    add("--arm", help="run this arm only: select:5e-4, rival:5e-4x16, quick:2")
    add("--by-steps", action="store_true", help="minutes are tokens at the measured speed")
    add("--measure", action="store_true", help="measure both speeds, in turns, and stop")
    add("--quick", action="store_true", help="under 5 minutes in all: short budgets, two rates")
    options = parser.parse_args()
    if options.data is None:
        parser.error("set BERTSMITH_DATA to the folder of data sets, or give --data")
    options.data = Path(options.data)
    if options.out is None and not options.quick:
        options.out = Path("learning-per-minute")
    if options.quick:
        options.minutes_rival, options.minutes_quick = 1.0, [0.3]
        options.rates = ["5e-4", "1e-3"]
    return options


if __name__ == "__main__":
    main()
