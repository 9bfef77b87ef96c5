"""Vectors from our server and from others, which take turns on the same machine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.recipes.export.config import ExportConfig
from bertsmith.recipes.export.recipe import export
from loading.bench import Bench
from loading.questions import save_questions
from loading.servers import Server, free_port

_RIVALS_WORDS = 120


def rivals(bench: Bench) -> dict[str, Any]:
    """Ask ours and others for vectors, in turns."""
    # some servers truncate silently what others refuse
    own = [
        question
        for question in bench.questions
        if question.kind == "vectors" and len(question.inputs.split()) <= _RIVALS_WORDS
    ]
    file = bench.folder / "vectors.pickle"
    save_questions(file, own)
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        running: dict[str, tuple[Server, dict[str, Any]]] = {}
        for name, start in _contestants(bench).items():
            try:
                server, how = start()
                server.wait()
            except SystemExit as problem:
                bench.tell("rivals", name, f"left out: {str(problem).splitlines()[-1][:90]}")
                found[name] = {"left_out": str(problem)[-2000:]}
                continue
            stack.callback(server.close)
            stack.enter_context(server.resting())
            running[name] = server, how
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in running}
        for turn in range(bench.options.turns + 1):
            names = list(running)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                server, how = running[name]
                result = _turn(bench, server, how | {"questions": str(file)}, warm=turn == 0)
                if turn:
                    turns[name].append(result)
    for name, results in turns.items():
        found[name] = results
        rates = [item["answers_per_second_to_the_last"] for item in results]
        late = [item["latency"]["200"]["p99"] for item in results if "200" in item["latency"]]
        wrong = sum(sum(item["wrong"].values()) for item in results)
        cpu = np.median([item["cpu_server"] for item in results])
        figure = (
            f"{np.median(rates):.0f} answers/s, p99 {np.median(late or [0]):.3f} s, "
            f"{cpu:.1f} s of processor a turn, {wrong} beyond the bound"
        )
        bench.tell("rivals", name, figure)
    return found


def _turn(bench: Bench, server: Server, how: dict[str, Any], *, warm: bool) -> dict[str, Any]:
    """Load one server, which rests before and after."""
    for process in reversed(server.processes()):
        os.kill(process, signal.SIGCONT)
    before = sum(server.seconds().values())
    seconds = 3.0 if warm else bench.options.turn_seconds
    result = bench.load(server, seconds=seconds, clients=min(bench.options.clients, 64), **how)
    found = result.result() | {"cpu_server": sum(server.seconds().values()) - before}
    for process in server.processes():
        os.kill(process, signal.SIGSTOP)
    return found


def _contestants(bench: Bench) -> dict[str, Callable[[], tuple[Server, dict[str, Any]]]]:
    """Return how each server is started, and how it is asked."""
    python, precision = bench.options.rivals_python, bench.options.precision
    threads, folder = str(len(bench.cores)), str(bench.folders["vectors"])
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[precision]

    def server(
        name: str, port: int, ready: str, *command: str, folder: Path | None = None
    ) -> Server:
        log = bench.folder / f"{name.split(maxsplit=1)[0]}.log"
        return Server(name, list(command), port, ready, log, folder, cores=bench.cores)

    def own() -> tuple[Server, dict[str, Any]]:
        port = free_port()
        command = [
            sys.executable, "-m", "bertsmith", "serve", folder, "--name", "vectors",
            "--port", str(port), "--precision", precision,
        ]  # fmt: skip
        how = {"path": "/v1/embeddings", "dialect": "openai"}
        return server("ours", port, "/ready", *command), how

    def infinity(engine: str, folder: Path, *more: str) -> tuple[Server, dict[str, Any]]:
        port = free_port()
        command = [
            # the engine for ONNX finds files by their place in the current folder alone
            _needed(python), "-m", "infinity_emb.cli", "v2", "--model-id", ".",
            "--served-model-name", "vectors", "--engine", engine, "--device", "cpu",
            "--dtype", dtype, "--port", str(port), "--no-model-warmup", "--log-level", "error",
            *more,
        ]  # fmt: skip
        how = {"path": "/embeddings", "dialect": "openai", "precision": "bf16"}
        return server(f"infinity-{engine}", port, "/health", *command, folder=folder), how

    def infinity_onnx() -> tuple[Server, dict[str, Any]]:
        # in fp32, whatever the others compute in
        exported = bench.folder / "vectors-onnx"
        if not exported.exists():
            export(ExportConfig(model=bench.folders["vectors"], to="onnx", out=exported))
        # its optimiser fails with today's optimum; onnxruntime's own made this graph no faster
        return infinity("optimum", exported, "--onnx-disable-optimize", "--pooling-method", "mean")

    def fastapi() -> tuple[Server, dict[str, Any]]:
        port = free_port()
        script = str(Path(__file__).parent / "rival_server.py")
        command = [_needed(python), script, folder, str(port), threads, precision]
        how = {"path": "/v1/embeddings", "dialect": "openai", "precision": "bf16"}
        return server("fastapi", port, "/health", *command), how

    return {
        "ours": own,
        "infinity-emb, torch": partial(infinity, "torch", bench.folders["vectors"]),
        "infinity-emb, ONNX": infinity_onnx,
        "FastAPI + sentence-transformers": fastapi,
    }


def _needed(python: str | None) -> str:
    if python is None:
        raise SystemExit("--rivals-python is not given")
    return python
