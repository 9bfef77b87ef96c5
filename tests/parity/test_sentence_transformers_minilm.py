"""Vectors of the real MiniLM, on real lines, against sentence-transformers."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertModel, BertTokenizer

import campaigns
from bertsmith.engine.answers import Forward
from bertsmith.engine.config import FeatureConfig
from bertsmith.engine.features import features
from bertsmith.tasks.opening import Embedder, open_embedder, vectors
from bertsmith.text.examples.reading import Example
from bounds import close_to_transformers, close_unit_vectors

LENGTHS = (12, 40, 120, 400, 1200, 5000)


def real_texts(data: Path, count: int) -> list[str]:
    """Real texts from a few characters to well beyond the 256 tokens that are read."""
    lines = (data / "sms-spam" / "SMSSpamCollection").read_text("utf-8").splitlines()
    found = {line.split("\t")[1].strip() for line in lines}
    lines = (data / "glue" / "RTE" / "dev.tsv").read_text("utf-8").splitlines()[1:]
    found |= {line.split("\t")[1].strip() for line in lines}
    for novel in sorted((data / "text" / "novels").glob("*.txt")):
        found |= {" ".join(part.split()) for part in novel.read_text("utf-8").split("\n\n")}
    # others of them in other parts of `make faults`
    draw = random.Random(8 + campaigns.numbers(1).start)
    edges = (1, *LENGTHS)
    groups = [
        sorted(text for text in found if low <= len(text) < high) for low, high in pairwise(edges)
    ]
    each = -(-count // len(groups))
    texts = [text for group in groups for text in draw.sample(group, min(each, len(group)))]
    draw.shuffle(texts)
    return texts[:count]


@pytest.fixture(scope="module")
def embedder(minilm_folder: Path) -> Embedder:
    return open_embedder(minilm_folder)


@pytest.mark.parametrize("count", [24, pytest.param(500, marks=pytest.mark.faults)])
def test_vectors_are_those_of_sentence_transformers(
    embedder: Embedder, minilm_folder: Path, data_folder: Path, count: int
) -> None:
    library = pytest.importorskip("sentence_transformers")
    texts = real_texts(data_folder, count)
    assert len(texts) == count
    reference = library.SentenceTransformer(str(minilm_folder), device="cpu")
    theirs = np.asarray(reference.encode(texts, show_progress_bar=False)).astype(np.float64)
    ours = vectors(embedder, texts).astype(np.float64)
    close_to_transformers(ours, theirs)
    assert cosines(ours, theirs).min() > 0.999999


def test_every_layer_is_that_of_transformers(
    embedder: Embedder, minilm_folder: Path, data_folder: Path
) -> None:
    texts = real_texts(data_folder, 6)
    theirs = BertModel.from_pretrained(minilm_folder, attn_implementation="eager").eval()
    tokenizer = BertTokenizer.from_pretrained(minilm_folder)
    asked = [
        Example(text=text, text_pair=None, label=None, source="texts", line=1) for text in texts
    ]
    expected = []
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=128, return_tensors="pt")
        with torch.no_grad():
            expected.append(theirs(**ids, output_hidden_states=True).hidden_states)
    for layer in range(7):
        config = FeatureConfig(layer=str(layer), pool="token", max_length=128)
        found = features(embedder.engine.model, embedder.tokenizer, asked, config)
        for result, states in zip(found, expected, strict=True):
            close_to_transformers(result.vectors, states[layer][0])


@pytest.mark.parametrize("count", [18, pytest.param(250, marks=pytest.mark.faults)])
def test_vectors_do_not_depend_on_the_batch(
    embedder: Embedder, data_folder: Path, count: int
) -> None:
    texts = real_texts(data_folder, count)
    draw = np.random.default_rng(5)
    expected = vectors(embedder, texts)
    for rows, tokens in ((1, 2048), (7, 300), (count, 900)):
        order = draw.permutation(count)
        asked = (
            Example(text=texts[n], text_pair=None, label=None, source="texts", line=1)
            for n in order
        )
        found = features(
            embedder.engine.model, embedder.tokenizer, asked, embedder.config,
            after=embedder.after, rows=rows, forward=Forward(tokens_per_batch=tokens),
        )  # fmt: skip
        got = np.stack([result.vectors for result in found])
        close_unit_vectors(got, expected[order])


def cosines(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each text the cosine of the two vectors."""
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return np.asarray((ours * theirs).sum(axis=1) / lengths)
