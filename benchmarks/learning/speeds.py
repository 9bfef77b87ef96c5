"""Tokens a second of both sides, in turns, each in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from learning import ours, rival
from learning.text import Novels, blocks, novels

_ROUNDS, _SECONDS = 4, 6.0
_FILE = "speeds.json"


def speeds(out: Path) -> dict[str, float]:
    """What `measure` found."""
    path = out / _FILE
    if not path.exists():
        raise SystemExit(f"{path} is not there: run with --measure first, on a quiet machine")
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return found


def measure(out: Path, text: Novels, vocabulary: Path, threads: int) -> None:
    """Let the two train for some seconds in turns; keep the medians of their tokens a second."""
    context = multiprocessing.get_context("spawn")
    asked: dict[str, Connection] = {}
    for side in ("rival", "quick"):
        asked[side], there = context.Pipe()
        context.Process(
            target=_serve, args=(there, side, out, vocabulary, threads), daemon=True
        ).start()
        asked[side].recv()
    found: dict[str, list[float]] = {side: [] for side in asked}
    for _ in range(_ROUNDS):
        for side, connection in asked.items():
            connection.send(_SECONDS)
            found[side].append(connection.recv())
    for connection in asked.values():
        connection.send(None)
    medians = {side: round(statistics.median(result), 1) for side, result in found.items()}
    (out / _FILE).write_text(json.dumps(medians) + "\n", encoding="utf-8")
    print(json.dumps({"tokens_per_second": found, "medians": medians}))


def _serve(asked: Connection, side: str, out: Path, vocabulary: Path, threads: int) -> None:
    torch.set_num_threads(threads)
    text = novels(vocabulary.parent.parent, out)
    step = _rival(text, vocabulary) if side == "rival" else ours.stepper(text)
    for _ in range(3):
        step()
    asked.send(None)
    while (seconds := asked.recv()) is not None:
        began, tokens = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            tokens += step()
        asked.send(tokens / (time.perf_counter() - began))


def _rival(text: Novels, vocabulary: Path) -> Callable[[], int]:
    every = blocks(text.learn, text.tokenizer)
    trainer = rival.Trainer(every, vocabulary, text.tokenizer.size, rate=5e-4)
    return lambda: trainer.step(rival.full_loss, 0.0)[0]
