"""Vectors of texts on a GPU: the engine beside sentence-transformers, in one run of two minutes.

    python benchmarks/gpu_answers.py [--rounds N] [--shape 12/768]
    python benchmarks/gpu_answers.py --device cpu --shape 2/128 --texts 200   to see that it runs

A BERT with random weights, with the vocabulary and texts of BERTSMITH_DATA or with invented ones.
All take turns in one process: the engine; the network, with batches of 2,048 tokens as they suit a
processor; and sentence-transformers with the fastest of some batch sizes. Times are medians over
the rounds, cosines are those with the vectors of the network in fp32. `computing` is the time for
which kernels ran, by torch's profiler, and MFU the share of the fastest bf16 product in it. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from answering.texts import mixed
from bertsmith.batches.examples import TOKENS_PER_BATCH
from bertsmith.engine import answers
from bertsmith.engine.config import EngineConfig
from bertsmith.engine.devices import device_named
from bertsmith.engine.prepared import Prepared, prepare_model
from bertsmith.network.config import ModelConfig, Precision, encoder_of
from bertsmith.network.flops import Work, forward_flops
from bertsmith.network.model import build_model
from bertsmith.network.pooling import UnitLength
from bertsmith.tasks.opening import open_embedder, vectors
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.peak import measure_peak
from bertsmith.weights.folder import load_model
from bertsmith.weights.sentence_folder import SentenceSettings, save_sentence_folder
from throughput.sequences import tokenizer_for

LONGEST = 512
BATCHES = (32, 128, 512, 1024)
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
REFERENCE = "network fp32"
SINGLES = 20

Vectors = NDArray[np.float32]
Run = Callable[[list[str]], Vectors]


def main() -> None:
    """Run everything, print the table and a line of JSON."""
    asked = _arguments()
    device = device_named(asked.device)
    data = os.environ.get("BERTSMITH_DATA")
    with tempfile.TemporaryDirectory() as place:
        tokenizer = tokenizer_for(None if data is None else Path(data), Path(place))
        texts, source = mixed(asked.texts, list(tokenizer.vocabulary))
        config = _save(Path(place) / "model", tokenizer, asked.shape)
        runs = _contestants(Path(place) / "model", device, texts)
        rows = race(runs, texts, asked.rounds)
        if device.type == "cuda":
            for name, run in runs.items():
                if not name.startswith("sentence"):
                    rows[name]["computing"] = _computing(run, texts)
    lengths = [min(len(ids) + 2, LONGEST) for ids in tokenizer.encode(texts)]
    peak = measure_peak("bf16", device, 2.0)
    work = Work(tokens=sum(lengths), pairs=sum(length**2 for length in lengths))
    operations = forward_flops(config, work)
    for row in rows.values():
        if "computing" in row:
            row["mfu"] = operations / row["computing"] / peak
    _show(rows, f"{asked.shape}, {len(texts):,} texts of {np.mean(lengths):.0f} tokens ({source})")
    chip = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    told = {"device": chip, "shape": asked.shape, "tokens": sum(lengths), "peak": peak}
    print(json.dumps({"benchmark": "gpu_answers"} | told | {"rows": rows}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or, to try it, cpu")
    parser.add_argument("--shape", default="12/768", help="layers and width")
    parser.add_argument("--texts", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _save(folder: Path, tokenizer: Tokenizer, shape: str) -> ModelConfig:
    """Save a model with random weights as a sentence-transformers folder."""
    settings = SentenceSettings(
        network=folder, pool=("mean",), longest=LONGEST, after=(UnitLength(),)
    )
    config = ModelConfig(encoder=encoder_of("bert", shape, tokenizer.size), pooler=False)
    save_sentence_folder(folder, build_model(config, seed=0), tokenizer, settings)
    return config


def _contestants(folder: Path, device: torch.device, texts: list[str]) -> dict[str, Run]:
    """Return all that turn texts into vectors, by name."""
    runs: dict[str, Run] = {}
    for precision in PRECISIONS:
        runs[f"engine {precision}"] = _ours(folder, device, precision, network=False)
    for precision in PRECISIONS:
        runs[f"network {precision}"] = _in_small_batches(
            _ours(folder, device, precision, network=True)
        )
    for precision in PRECISIONS:
        name, run = _fastest_rival(folder, device, precision, texts)
        runs[name] = run
    return runs


def _ours(folder: Path, device: torch.device, precision: Precision, *, network: bool) -> Run:
    model, tokenizer = load_model(folder)
    engine = prepare_model(
        model.to(device),
        EngineConfig(precision=precision),
        backend="network" if network else None,
    )
    return _embedding(folder, engine, tokenizer)


def _embedding(folder: Path, engine: Prepared, tokenizer: Tokenizer) -> Run:
    embedder = open_embedder(folder, loaded=(engine, tokenizer))
    return lambda texts: vectors(embedder, texts)


def _in_small_batches(run: Run) -> Run:
    def limited(texts: list[str]) -> Vectors:
        with _tokens_of_a_processor():
            return run(texts)

    return limited


@contextmanager
def _tokens_of_a_processor() -> Iterator[None]:
    of_a_gpu = answers.GPU_TOKENS_PER_BATCH
    answers.GPU_TOKENS_PER_BATCH = TOKENS_PER_BATCH
    try:
        yield
    finally:
        answers.GPU_TOKENS_PER_BATCH = of_a_gpu


def _fastest_rival(
    folder: Path, device: torch.device, precision: Precision, texts: list[str]
) -> tuple[str, Run]:
    """Return sentence-transformers with the fastest batch size, and its name."""
    from sentence_transformers import SentenceTransformer

    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    model = SentenceTransformer(str(folder), device=str(device), model_kwargs={"dtype": kind})

    def run(texts: list[str], size: int) -> Vectors:
        found = model.encode(
            texts, batch_size=size, show_progress_bar=False, convert_to_tensor=True
        )
        return np.asarray(found.float().cpu().numpy(), np.float32)

    seconds = {}
    for size in BATCHES:
        run(texts, size)
        seconds[size] = _seconds(lambda size=size: run(texts, size))  # type: ignore[misc]
    best = min(seconds, key=seconds.__getitem__)
    return f"sentence-transformers {precision}, batches of {best}", lambda texts: run(texts, best)


def race(runs: dict[str, Run], texts: list[str], rounds: int) -> dict[str, dict[str, Any]]:
    """Return medians of seconds, of all texts and of one, and the worst cosine, by contestant."""
    reference = runs[REFERENCE](texts)
    rows: dict[str, dict[str, Any]] = {}
    for name, run in runs.items():
        found = run(texts)
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(reference, axis=1)
        cosine = float(((found * reference).sum(1) / lengths).min())
        rows[name] = {"bulk": [], "single": [], "cosine": cosine}
    for _ in range(rounds):
        for name, run in runs.items():
            rows[name]["bulk"].append(_seconds(lambda run=run: run(texts)))  # type: ignore[misc]
            for text in texts[:SINGLES]:
                rows[name]["single"].append(
                    _seconds(lambda run=run, text=text: run([text]))  # type: ignore[misc]
                )
    for row in rows.values():
        row |= {key: statistics.median(row[key]) for key in ("bulk", "single")}
        row["texts_per_second"] = len(texts) / row["bulk"]
    return rows


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _computing(run: Run, texts: list[str]) -> float:
    """Return the seconds for which kernels ran on the GPU."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run(texts)
        torch.cuda.synchronize()
    kernels = sorted(profile.key_averages(), key=lambda item: -item.self_device_time_total)
    for kernel in kernels[:12]:
        print(f"{kernel.self_device_time_total / 1e3:9.2f} ms {kernel.count:6d} {kernel.key[:80]}")
    print()
    return 1e-6 * float(sum(item.self_device_time_total for item in kernels))


def _show(rows: dict[str, dict[str, Any]], title: str) -> None:
    table = Table(title=title)
    for column in ("", "texts/s", "one text, ms", "worst cosine", "computing, s", "MFU"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in rows.items():
        computing = [f"{row['computing']:.3f}", f"{row['mfu']:.0%}"] if "mfu" in row else ["", ""]
        table.add_row(
            name, f"{row['texts_per_second']:,.0f}", f"{1e3 * row['single']:.2f}",
            f"{row['cosine']:.6f}", *computing,
        )  # fmt: skip
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
