"""Passages whose relevances are 1 in float32 and whose logits differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import bertsmith
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import build_model
from bertsmith.weights.folder import save_model
from bounds import metric
from families import ENCODERS, TOKENIZERS

QUERIES, PASSAGES = 7, 5


def save_ranker(folder: Path, middle: float) -> None:
    """Save a ranker whose logits lie around `middle`, some units apart."""
    config = ModelConfig(
        encoder=ENCODERS["bert"], predicts="number", labels=("relevance",), classifier_dropout=0.0
    )
    model = build_model(config, seed=7)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(3)
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
        model.get_parameter("heads.classify.weight").mul_(30)
        model.get_parameter("heads.classify.bias").fill_(middle)
    save_model(folder, model, TOKENIZERS["bert"])


@pytest.fixture(scope="module")
def sure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ranker whose logits lie around 60."""
    folder = tmp_path_factory.mktemp("sure") / "model"
    save_ranker(folder, 60)
    return folder


def logits_of_transformers(folder: Path, given: list[dict[str, Any]]) -> list[float]:
    theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return [
            theirs(**tokenizer(row["query"], row["passage"], return_tensors="pt")).logits.item()
            for row in given
        ]


def rows() -> list[dict[str, Any]]:
    random = np.random.default_rng(5)
    return [
        {
            "query": f"word{query}",
            "passage": " ".join(f"word{word}" for word in random.permutation(40)[:6]),
            "relevance": int(number == query % PASSAGES),
        }
        for query in range(QUERIES)
        for number in range(PASSAGES)
    ]


def test_they_are_ranked_as_by_the_logits_of_transformers(sure: Path) -> None:
    given = rows()
    logits = logits_of_transformers(sure, given)
    assert min(logits) > 17
    relevance = np.array([row["relevance"] for row in given]).reshape(QUERIES, PASSAGES)
    scores = np.array(logits).reshape(QUERIES, PASSAGES)
    expected = np.mean(list(map(average_precision_score, relevance, scores)))
    loaded = bertsmith.load(sure, precision="fp32")
    assert loaded.evaluate(given)["scores"]["map"]["value"] == metric(expected)
    answers = loaded.predict([(row["query"], row["passage"]) for row in given])
    assert [answer["relevance"] for answer in answers] == [1.0] * len(given)


@pytest.mark.parametrize("middle", [17, 0, -17])
def test_relevances_have_the_order_of_the_logits(tmp_path: Path, middle: float) -> None:
    """Six decimals would make equal what a reader of the answers is to sort."""
    save_ranker(tmp_path / "model", middle)
    given = rows()
    logits = logits_of_transformers(tmp_path / "model", given)
    assert len(set(logits)) == len(given)
    loaded = bertsmith.load(tmp_path / "model", precision="fp32")
    answers = loaded.predict([(row["query"], row["passage"]) for row in given])
    relevances = [answer["relevance"] for answer in answers]
    assert np.argsort(relevances).tolist() == np.argsort(logits).tolist()
