"""Every verb that computes, with --device cuda, from a store to answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.cli.main import main
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
from bounds import check
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

ON_GPU = ["--device", "cuda"]
# auto is bf16 on processors that have it
EXACT = ["--precision", "fp32"]
QUICK = ["--epochs", "2", "--seeds", "1", "--batch-size", "16", "--max-length", "32"]


def ran(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0, arguments


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A model pre-trained on the GPU for a moment."""
    folder = tmp_path_factory.mktemp("parent")
    prepare_store(invented_documents(50), tokenizer, folder / "store", held_out=0.1)
    ran(
        "pretrain", folder / "store", "--out", folder / "run", "--model", "2/128", "--steps", 30,
        "--max-length", 31, "--max-positions", 64, "--tokens-per-batch", 512, *ON_GPU,
    )  # fmt: skip
    return folder / "run" / "model"


def rows(task: str, random: np.random.Generator) -> dict[str, Any]:
    words = ["".join(random.choice(["ba", "do", "gi", "ku"], 2)) for _ in range(8)]
    good = bool(random.integers(0, 2))
    words[3] = "tatata" if good else "zozozo"
    text = " ".join(words)
    start = len(" ".join(words[:3])) + 1
    answer = {"text": [words[3]], "answer_start": [start]}
    every: dict[str, dict[str, Any]] = {
        "classify": {"text": text, "label": "up" if good else "down"},
        "regression": {"text": text, "score": 1.5 if good else 0.25},
        "multi-label": {"text": text, "labels": ["up"] if good else []},
        "tag": {"text": text, "entities": [[start, start + 6, "X"]]},
        "span": {"id": text, "question": words[3], "context": text, "answers": answer},
        "choice": {"text": words[0], "choices": [text, "badogi ku"], "label": int(good)},
        "rank": {"query": words[0], "passage": text, "relevance": int(good)},
    }
    return every[task]


TASKS = ("classify", "regression", "multi-label", "tag", "span", "choice", "rank")


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_learned_and_answered(
    parent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str
) -> None:
    random = np.random.default_rng(3)
    for name, count in (("train", 96), ("dev", 32)):
        lines = [json.dumps(rows(task, random)) for _ in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    ran(
        "finetune", parent, train, "--dev", dev, "--task", task, "--out", tmp_path / "run",
        *QUICK, *ON_GPU,
    )  # fmt: skip
    model = tmp_path / "run" / "model"
    answers: dict[str, list[Any]] = {}
    for device in ("cpu", "cuda"):
        capsys.readouterr()
        ran("predict", model, dev, "--format", "jsonl", "--device", device, *EXACT)
        answers[device] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        ran("evaluate", model, dev, "--device", device)
    assert len(answers["cuda"]) == len(answers["cpu"])
    for mine, other in zip(answers["cuda"], answers["cpu"], strict=True):
        assert mine.keys() == other.keys()
        for key, value in other.items():
            if isinstance(value, float):
                check(mine[key], value, 1e-4, key)


def test_vectors_are_those_of_the_processor(parent: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    lines = [" ".join(["badogi", "kuda"] * (1 + n % 14)) for n in range(300)]
    texts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    vectors = {}
    for device in ("cpu", "cuda"):
        out = tmp_path / f"{device}.npy"
        ran("embed", parent, texts, "--out", out, "--device", device, *EXACT)
        vectors[device] = np.load(out)
    check(vectors["cuda"], vectors["cpu"], 1e-5)
    ran("embed", parent, texts, "--out", tmp_path / "bf16.npy", "--precision", "bf16", *ON_GPU)
    half = np.load(tmp_path / "bf16.npy").astype(np.float64)
    whole = vectors["cpu"].astype(np.float64)
    cosine = (half * whole).sum(1) / np.linalg.norm(half, axis=1) / np.linalg.norm(whole, axis=1)
    assert cosine.min() >= 0.9999


def test_the_other_verbs_compute_there(parent: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    lines = [json.dumps(rows("classify", random)) for _ in range(96)]
    train, texts = tmp_path / "train.jsonl", tmp_path / "texts.txt"
    train.write_text("\n".join(lines) + "\n", encoding="utf-8")
    texts.write_text("badogi kuda tatata.\nzozozo ba do gi ku.\n", encoding="utf-8")
    ran("finetune", parent, train, "--out", tmp_path / "taught", *QUICK, *ON_GPU)
    taught = tmp_path / "taught" / "model"
    ran(
        "distil", taught, train, "--student", "1/128", "--out", tmp_path / "small",
        *QUICK, *ON_GPU,
    )  # fmt: skip
    ran("explain", taught, texts, "--out", tmp_path / "why.html", *ON_GPU)
    ran("inspect", parent, texts, "--out", tmp_path / "heads.html", *ON_GPU)
    ran("score", parent, texts, *ON_GPU)
    masked = tmp_path / "masked.txt"
    masked.write_text("badogi [MASK] tatata.\n", encoding="utf-8")
    ran("predict", parent, masked, *ON_GPU)
