"""Outputs that are no numbers: nothing is answered of such a text, and nothing else changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.core.errors import NonFiniteOutputs
from bertsmith.engine.answers import finite
from bertsmith.engine.features import features
from bertsmith.network.model import build_model
from bertsmith.recipes.config import InspectConfig
from bertsmith.recipes.inspect import inspect
from bertsmith.text.examples.example import Example
from bertsmith.weights.folder import save_model
from families import MODELS, TOKENIZERS
from serving_inline import serving

PrecisionChoice = Literal["fp32", "bf16", "int8"]

# the sum of this word's embedding exceeds float32, so that its norm is no number
HUGE, TEXTS = "word7", ["word1 word2", "word3 word7", "word4 word5 word6"]
ROWS: dict[str, list[Any]] = {
    "class": TEXTS,
    "classes": TEXTS,
    "number": TEXTS,
    "tags": TEXTS,
    "pretraining": [(text, "word8") for text in TEXTS],
    "span": [{"question": "word1", "context": text} for text in TEXTS],
    "choice": [{"text": text, "choices": ["word2", "word3"]} for text in TEXTS],
}


def folder_of(head: str, folder: Path) -> Path:
    model, tokenizer = build_model(MODELS[f"bert-{head}"], seed=3), TOKENIZERS["bert"]
    with torch.no_grad():
        model.encoder.embeddings.tokens.weight[tokenizer.vocabulary.index(HUGE)] = 3e38
    save_model(folder, model, tokenizer)
    return folder


@pytest.mark.parametrize(
    ("head", "precision"), [*((head, "fp32") for head in ROWS), ("class", "bf16"), ("tags", "int8")]
)
def test_a_text_without_finite_outputs_is_named(
    head: str, precision: PrecisionChoice, tmp_path: Path
) -> None:
    model = bertsmith.load(folder_of(head, tmp_path / "model"), precision=precision)
    for first in range(2):
        with pytest.raises(NonFiniteOutputs, match=rf"^example {1 - first}: .* not finite"):
            model.predict(ROWS[head][first:])
    assert len(model.predict(ROWS[head][::2])) == 2


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_there_are_no_vectors_of_it(precision: PrecisionChoice, tmp_path: Path) -> None:
    model = bertsmith.load(folder_of("none", tmp_path / "model"), precision=precision)
    with pytest.raises(NonFiniteOutputs, match=r"^example 1: "):
        model.embed(TEXTS)
    assert np.isfinite(model.embed(TEXTS[::2])).all()


def test_layers_after_the_pooling_count(tmp_path: Path) -> None:
    model = bertsmith.load(folder_of("none", tmp_path / "model"), precision="fp32")
    example = Example(text=TEXTS[0], text_pair=None, label=None, source="texts.txt", line=7)
    dense = torch.nn.Linear(32, 8).requires_grad_(False)
    dense.weight.fill_(3e38)
    dense.bias.fill_(3e38)
    with pytest.raises(NonFiniteOutputs, match=r"texts\.txt:7: "):
        list(features(model.model, TOKENIZERS["bert"], [example], after=[dense]))


def test_no_mask_is_filled_where_a_piece_has_no_score(tmp_path: Path) -> None:
    # the huge row is also that by which the word is scored, whatever the text
    model = bertsmith.load(folder_of("masked_lm", tmp_path / "model"), precision="fp32")
    for options in ({}, {"choices": ["word1", "word2"]}):
        with pytest.raises(NonFiniteOutputs):
            model.fill_mask("word1 [MASK]", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("head", ["class", "tags", "span"])
def test_nothing_is_explained_of_it(head: str, tmp_path: Path) -> None:
    model = bertsmith.load(folder_of(head, tmp_path / "model"))
    with pytest.raises(NonFiniteOutputs, match=r"^example 1: "):
        model.explain(ROWS[head], methods="leave-one-out")


def test_no_attention_is_measured_of_it(tmp_path: Path) -> None:
    folder, texts = folder_of("none", tmp_path / "model"), tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    with pytest.raises(NonFiniteOutputs, match="a text are not finite"):
        inspect(InspectConfig(model=folder, file=str(texts), out=tmp_path / "page.html"))


async def _answers(folder: Path, body: dict[str, Any]) -> list[Any]:
    async with serving(folder) as rig:
        together = await rig.client.post("/answer", json=body | {"inputs": TEXTS})
        alone = [await rig.client.post("/answer", json=body | {"inputs": [text]}) for text in TEXTS]
    return [together, *alone]


@pytest.mark.parametrize("head", ["class", "number", "none"])
def test_a_server_fails_for_it_alone(head: str, tmp_path: Path) -> None:
    body = {"task": "vectors"} if head == "none" else {}
    together, *alone = asyncio.run(_answers(folder_of(head, tmp_path / "model"), body))
    assert [answer.status_code for answer in alone] == [200, 500, 200]
    assert together.status_code == 500
    assert "not finite" in together.text


def test_large_numbers_are_finite() -> None:
    """In float32 their sum is not."""
    large = torch.full((3,), 3e38)
    assert torch.equal(finite(large), large)
