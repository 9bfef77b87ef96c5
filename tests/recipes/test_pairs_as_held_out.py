"""Pairs judged by `predict` against the figure that pre-training itself gives for held-out text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bertsmith.batches.config import SampleConfig
from bertsmith.engine.config import FULL_PRECISION
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.pretraining import NextSentence
from bertsmith.recipes.predict.config import PredictConfig
from bertsmith.recipes.predict.recipe import predict
from bertsmith.recipes.pretrain.report import evaluate_held_out, first_batches, held_out_batches
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model


def documents() -> Iterator[Document]:
    """Forty documents, each of a few words of its own, so that pairs can be told apart."""
    random = np.random.default_rng(3)
    for number in range(40):
        own = [f"word{item}" for item in random.choice(30, 4, replace=False)]
        sentences = [" ".join(random.choice(own, 5)) for _ in range(12)]
        yield Document(source="made", line=number + 1, paragraphs=tuple(sentences))


def test_accuracy_by_predict_is_the_held_out_figure_of_pretraining(
    tiny_tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_store(documents(), tiny_tokenizer, tmp_path / "store", held_out=0.3)
    encoder = EncoderConfig(
        vocabulary=37, hidden=24, layers=1, heads=3, feed_forward=48, longest=32, initial_std=0.6
    )
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    model = build_model(config, seed=3)
    save_model(tmp_path / "model", model, tiny_tokenizer)
    store, samples = TokenStore(tmp_path / "store"), SampleConfig(max_length=23)
    held_out = held_out_batches(tiny_tokenizer, store, samples)
    assert held_out is not None
    # what a run writes into its result and its report
    figures = evaluate_held_out(model, Objective({"next_sentence": NextSentence()}), held_out)

    lines, labels = [], []
    for batch in first_batches(held_out, 10**6):
        target = batch.targets["next_sentence"]
        labels += target.labels.tolist()
        sequences = batch.ids.split(list(batch.lengths))
        # a window of one sentence makes no pair
        for number in target.positions.tolist():
            row = sequences[number].tolist()[1:-1]
            middle = row.index(tiny_tokenizer.sep_id)
            halves = (row[:middle], row[middle + 1 :])
            lines.append("\t".join(tiny_tokenizer.decode(half) for half in halves))
    assert any("[MASK]" in line for line in lines)
    assert not all("[MASK]" in line for line in lines)
    (tmp_path / "pairs.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    capsys.readouterr()
    predict(
        PredictConfig(
            model=tmp_path / "model",
            file=str(tmp_path / "pairs.txt"),
            format="jsonl",
            engine=FULL_PRECISION,
        )
    )
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    right = [result["is_next"] == (label == 0) for result, label in zip(found, labels, strict=True)]
    assert np.mean(right) == figures["next_sentence_accuracy"]
    shares = [result["probability"] for result in found]
    losses = [
        -math.log(share if label == 0 else 1 - share)
        for share, label in zip(shares, labels, strict=True)
    ]
    assert np.mean(losses) == pytest.approx(figures["next_sentence_loss"], abs=1e-4)
    assert len({result["is_next"] for result in found}) == 2
