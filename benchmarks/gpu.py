"""BERT-base on an accelerator, beside transformers: tokens a second, and minutes of learning.

python benchmarks/gpu.py                        everything, half an hour or so
python benchmarks/gpu.py --part ours            one part of it; what is done is kept in --out
python benchmarks/gpu.py --quick                shapes and minutes cut down, to see that it runs
python benchmarks/gpu.py --quick --device cpu --size tiny

Parts: `throughput` calls pretrain_throughput.py at 128 and at 512 tokens, full steps in bf16, with
transformers' sdpa, eager and compiled. `rival` and `ours` train the same BERT one after the other,
for the same minutes on the same documents: transformers as its script run_mlm.py does it, but with
sdpa, torch.compile and a warm-up; bertsmith by its recipe quick. `table` shows what there is. Both
are judged alike, by the held-out masked loss of the same blocks in float32. The text is that of
BERTSMITH_DATA's novels, with bert-base-uncased's vocabulary, or without it the documentation of
this machine's Python, with a vocabulary learned from it.

Bars: 50 % of the fastest matrix product (MFU) and 2.5 times the tokens of transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from accelerator.contestants import Plan, train_ours, train_rival
from accelerator.text import Text, text_for
from bertsmith.engine.devices import device_named
from bertsmith.network.families.bert import BERT

PARTS = ("throughput", "rival", "ours", "table")
MAX_LENGTH = (128, 512)
UTILISATION_BAR, RATIO_BAR = 0.5, 2.5


def main() -> None:
    """Run what the command line asks for, print the table and a line of JSON."""
    asked = _arguments()
    device = device_named(asked.device)
    asked.out.mkdir(parents=True, exist_ok=True)
    plan = Plan(size=asked.size, minutes=asked.minutes, device=str(device), compiled=asked.compile)
    text: Text | None = None
    for part in PARTS[:-1] if asked.part is None else (asked.part,):
        if part == "table" or _path(asked.out, part).exists():
            continue
        if part == "throughput":
            found: dict[str, Any] = {str(n): _throughput(asked, n) for n in MAX_LENGTH}
        else:
            text = text or text_for(_data(), asked.out)
            found = (train_ours if part == "ours" else train_rival)(plan, text)
        _path(asked.out, part).write_text(json.dumps(found, indent=1), encoding="utf-8")
    results = {
        part: json.loads(_path(asked.out, part).read_text(encoding="utf-8"))
        for part in PARTS[:-1]
        if _path(asked.out, part).exists()
    }
    _show(results, asked, device)
    print(json.dumps({"benchmark": "gpu", "device": _name(device)} | results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="under five minutes")
    parser.add_argument("--part", choices=PARTS, help="only this part")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or, to try it, cpu")
    parser.add_argument("--size", default="base", choices=sorted(BERT.sizes))
    parser.add_argument("--minutes", type=float, help="of training for each; 8")
    parser.add_argument("--compile", action="store_true", default=None, help="compile the rival")
    parser.add_argument("--out", type=Path, help="folder of what is done; gpu-benchmark")
    asked = parser.parse_args()
    asked.minutes = asked.minutes or (0.25 if asked.quick else 8.0)
    asked.compile = asked.device != "cpu" if asked.compile is None else asked.compile
    asked.out = asked.out or Path("gpu-benchmark" + ("-quick" if asked.quick else ""))
    return asked


def _data() -> Path | None:
    return Path(os.environ["BERTSMITH_DATA"]) if os.environ.get("BERTSMITH_DATA") else None


def _path(out: Path, part: str) -> Path:
    return out / f"{part}.json"


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _throughput(asked: argparse.Namespace, longest: int) -> list[dict[str, Any]]:
    """The rows of pretrain_throughput.py at one length."""
    script = Path(__file__).with_name("pretrain_throughput.py")
    layers, hidden, *_ = BERT.sizes[asked.size]
    command = [
        sys.executable, str(script), "--device", torch.device(asked.device).type,
        "--shape", f"{layers}/{hidden}", "--table", "filled", "--longest", str(longest),
        "--objective", "masked_lm", *(["--quick"] if asked.quick else []),
    ]  # fmt: skip
    # cuda:1 is the first that the script sees
    index = torch.device(asked.device).index
    variables = os.environ | ({} if index is None else {"CUDA_VISIBLE_DEVICES": str(index)})
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout)
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["rows"]
    return rows


def _show(results: dict[str, Any], asked: argparse.Namespace, device: torch.device) -> None:
    console = Console(width=120)
    speeds = Table(title=f"tokens/s, BERT {asked.size}, bf16, {_name(device)}")
    for column in ("sequences", "transformers", "", "bertsmith", "ratio", "MFU"):
        speeds.add_column(column, justify="right")
    for longest, rows in results.get("throughput", {}).items():
        for row in rows:
            speeds.add_row(
                longest, f"{row['theirs']:,.0f}", row["rival"], f"{row['ours']:,.0f}",
                f"{row['ratio']:.2f}{_bar(row['ratio'], RATIO_BAR)}",
                f"{row['utilisation']:.0%}{_bar(row['utilisation'], UTILISATION_BAR)}",
            )  # fmt: skip
    if speeds.row_count:
        console.print(speeds)
    learned = Table(title="held-out masked loss (accuracy) over minutes of training")
    curves = {part: results[part]["points"] for part in ("rival", "ours") if part in results}
    for column in ("minutes", *curves):
        learned.add_column(column, justify="right")
    for points in zip(*curves.values(), strict=False):
        cells = [f"{point['loss']:.3f} ({point['accuracy']:.1%})" for point in points]
        learned.add_row(f"{points[0]['minutes']:.2f}", *cells)
    if curves:
        console.print(learned)


def _bar(figure: float, bar: float) -> str:
    return "" if figure >= bar else f" (bar {bar:g})"


if __name__ == "__main__":
    main()
