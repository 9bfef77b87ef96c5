"""What the server is asked under load: models of every kind, and questions with their answers.

All models have the encoder of MiniLM (or a tiny one), the heads are random and far from zero, so
that answers differ. The expected answers come from `bertsmith.load`, not from the server's code.
"""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import bertsmith
from answering.texts import mixed
from bertsmith.network.config import EncoderConfig, ModelConfig, Predicts
from bertsmith.network.model import Model, build_model
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_as, load_model, save_model, start_from
from loading.comparing import Numbers

LABELS: dict[str, tuple[Predicts, tuple[str, ...]]] = {
    "classes": ("class", ("anger", "joy", "fear", "calm", "other")),
    "multi-label": ("classes", ("music", "film", "sport", "law")),
    "regression": ("number", ("score",)),
    "tags": ("tags", ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")),
    "spans": ("span", ()),
    "choices": ("choice", ()),
}
# questions of each kind among a hundred
SHARES = {
    "vectors": 30, "classes": 25, "tags": 15, "spans": 10, "multi-label": 5, "regression": 5,
    "choices": 5, "fill-mask": 5,
}  # fmt: skip
# of the weights of a new head: answers differ, and their logits are no larger than real ones
_DEVIATION = 0.15


@dataclass(frozen=True)
class Question:
    """A request that is ready to be sent, and what has to come back."""

    kind: str
    model: str
    inputs: Any
    expected: Any


def build_models(encoder: Path, folder: Path, kinds: list[str]) -> dict[str, Path]:
    """Write a model folder for each kind; that of vectors is the encoder's own."""
    found = {}
    for number, kind in enumerate(kinds):
        if kind == "vectors":
            found[kind] = encoder
            continue
        if kind == "fill-mask":
            model, tokenizer = _masked(encoder, seed=number)
        else:
            predicts, labels = LABELS[kind]
            model, tokenizer = start_from(encoder, predicts=predicts, labels=labels, seed=number)
            with torch.no_grad():
                for name, weights in model.named_parameters():
                    if not name.startswith("encoder."):
                        weights.mul_(_DEVIATION / model.config.encoder.initial_std)
        found[kind] = folder / kind
        save_model(folder / kind, model, tokenizer)
    return found


def _masked(encoder: Path, seed: int) -> tuple[Model, Tokenizer]:
    config = load_model(encoder)[0].config
    return load_as(encoder, ModelConfig(encoder=config.encoder, masked_lm=True), seed=seed)


def tiny_encoder(minilm: Path, folder: Path) -> Path:
    """Write an encoder of two layers of 64 with MiniLM's vocabulary, to try the benchmark with."""
    tokenizer = Tokenizer.load(minilm)
    encoder = EncoderConfig(
        vocabulary=tokenizer.size, hidden=64, layers=2, heads=4, feed_forward=128, longest=512,
        initial_std=0.2,
    )  # fmt: skip
    save_model(folder, build_model(ModelConfig(encoder=encoder), seed=0), tokenizer)
    return folder


def draw_questions(count: int, kinds: list[str], vocabulary: list[str]) -> list[tuple[str, Any]]:
    """Return kinds and inputs in the proportions of SHARES, of texts of mixed lengths."""
    texts = [" ".join(text.split()) for text in mixed(2 * count, vocabulary)[0]]
    draw = random.Random(4)
    asked = draw.choices(kinds, weights=[SHARES[kind] for kind in kinds], k=count)
    rest = iter(draw.sample(texts, len(texts)))
    return [(kind, _inputs(kind, rest, draw)) for kind in asked]


def _inputs(kind: str, texts: Any, draw: random.Random) -> Any:  # noqa: ANN401
    text = next(texts)
    if kind == "spans":
        return {"question": " ".join(text.split()[:8]) + "?", "context": next(texts)}
    if kind == "choices":
        words = text.split()
        options = [" ".join(draw.choices(words, k=4)) for _ in range(3)]
        return {"text": text[:400], "choices": options}
    if kind == "fill-mask":
        words = text.split()[:60]
        words[draw.randrange(len(words))] = "[MASK]"
        return " ".join(words)
    return text


def answered(model: Any, kind: str, inputs: list[Any]) -> list[Any]:  # noqa: ANN401
    """Return the answers of an opened model, each as `comparing` compares them."""
    if kind == "vectors":
        return [Numbers(vector.astype("float64")) for vector in model.embed(inputs)]
    rows = [{"id": str(n), **item} for n, item in enumerate(inputs)] if kind == "spans" else inputs
    return model.predict(rows)  # type: ignore[no-any-return]


def open_model(folder: Path, precision: str, threads: int) -> Any:  # noqa: ANN401
    """Open a model with one of the engine's precisions."""
    return bertsmith.load(folder, precision=precision, threads=threads)  # type: ignore[arg-type]


def save_questions(file: Path, questions: list[Question]) -> None:
    """Write questions for the processes that ask them."""
    file.write_bytes(pickle.dumps(questions))


def read_questions(file: Path) -> list[Question]:
    """Read what `save_questions` wrote."""
    found: list[Question] = pickle.loads(file.read_bytes())
    return found


def body_of(question: Question, dialect: str) -> bytes:
    """Return the body of a request: /answer's, or that of OpenAI's /v1/embeddings."""
    if dialect == "openai":
        content: dict[str, Any] = {"model": question.model, "input": [question.inputs]}
    else:
        content = {
            "model": question.model, "task": question.kind, "inputs": [question.inputs],
            "truncate": True, "top": 5,
        }  # fmt: skip
    return json.dumps(content, ensure_ascii=False).encode()
