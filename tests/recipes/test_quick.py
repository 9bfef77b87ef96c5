"""The recipe `quick`: a plain BERT comes out, and sooner than from random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM

from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.errors import ConfigError
from bertsmith.network.families.bert import BERT
from bertsmith.network.families.family import usual
from bertsmith.recipes.pretrain.config import PretrainConfig, PretrainSettings
from bertsmith.recipes.pretrain.published import paper, quick
from bertsmith.recipes.pretrain.recipe import PretrainOutcome, pretrain, start
from bertsmith.recipes.pretrain.resolving import resolve
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import Budget
from bertsmith.weights.folder import load_model
from bounds import close_to_transformers
from invented import SYLLABLES, tokenizer

__all__ = ["tokenizer"]

STEPS = 30
BUDGET = Budget(steps=STEPS)


@pytest.fixture(scope="module", autouse=True)
def sizes() -> Iterator[None]:
    """A size that trains in no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BERT.sizes, "tiny", usual(2, 64))
        yield


def regular_documents(count: int) -> list[Document]:
    """Documents of words that follow one another as numbers do, with a leap now and then."""
    random = np.random.default_rng(0)
    documents = []
    for line in range(count):
        leaps = random.choice([1, 1, 1, 30], 300)
        words = [SYLLABLES[number] for number in np.cumsum(leaps) % len(SYLLABLES)]
        sentences = [" ".join(words[at : at + 10]) + "." for at in range(0, 300, 10)]
        documents.append(Document(source="regular", line=line + 1, paragraphs=tuple(sentences)))
    return documents


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "store"
    prepare_store(regular_documents(100), tokenizer, folder, held_out=0.1)
    return folder


def small(settings: PretrainSettings) -> PretrainSettings:
    """The same recipe on short sequences and small batches."""
    samples = replace(settings.samples, max_length=32, tokens_per_batch=512, copies=0)
    return replace(settings, samples=samples, phases=(), gradient_accumulation=1, measurements=0)


def run(store: Path, out: Path, settings: PretrainSettings) -> PretrainOutcome:
    return pretrain(
        PretrainConfig(store=store, out=out, model="tiny", steps=STEPS, settings=small(settings))
    )


@pytest.fixture(scope="module")
def trained(store: Path, tmp_path_factory: pytest.TempPathFactory, sizes: None) -> PretrainOutcome:
    return run(store, tmp_path_factory.mktemp("quick") / "run", quick("tiny"))


def test_the_folder_is_a_plain_bert(
    trained: PretrainOutcome, store: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    published = run(store, tmp_path / "run", paper("tiny"))
    ours, theirs = (outcome.folder / "model" for outcome in (trained, published))
    names = {path.name for path in ours.iterdir()}
    assert names == {path.name for path in theirs.iterdir()}
    for name in names - {"model.safetensors", "README.md"}:
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    assert json.loads((ours / "config.json").read_text(encoding="utf-8"))["model_type"] == "bert"
    held_out = TokenStore(store).held_out()
    assert held_out is not None
    batches = PretrainingBatches(held_out, tokenizer, SampleConfig(max_length=32), seed=0)
    batch, _ = batches.next_batch(DataPosition())
    model, _ = load_model(ours)
    rival = BertForMaskedLM.from_pretrained(ours).eval()
    with torch.no_grad():
        logits = model.masked_lm(model.encoder(batch).last)
        for begin, end in zip(
            batch.offsets[:9].tolist(), batch.offsets[1:10].tolist(), strict=True
        ):
            ids, segments = batch.ids[None, begin:end], batch.segments[None, begin:end]
            other = rival(input_ids=ids, token_type_ids=segments).logits[0]
            close_to_transformers(logits[begin:end], other)


def test_it_learns_sooner_than_from_random_weights(
    trained: PretrainOutcome, store: Path, tmp_path: Path
) -> None:
    settings = quick("tiny")
    random = replace(
        settings,
        network=replace(
            settings.network, initialisation="random", position_initialisation="sinusoidal"
        ),
    )
    other = run(store, tmp_path / "run", random).held_out["masked_lm_loss"]
    assert trained.held_out["masked_lm_loss"] < other - 0.3


def test_the_first_weights_are_a_pure_function_of_the_run(
    store: Path, tokenizer: Tokenizer
) -> None:
    wanted = resolve(store, "tiny", BUDGET, small(quick("tiny")))
    one, two = (start(wanted, tokenizer).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    changed = replace(wanted, settings=replace(wanted.settings, seed=1))
    other = start(changed, tokenizer).state_dict()["encoder.embeddings.tokens.weight"]
    assert not torch.equal(one["encoder.embeddings.tokens.weight"], other)


def test_an_albert_is_refused_with_the_remedy(store: Path, tokenizer: Tokenizer) -> None:
    settings = small(quick("base"))
    albert = replace(settings, network=replace(settings.network, family="albert"))
    with pytest.raises(ConfigError, match="--initialisation random"):
        start(resolve(store, "base", BUDGET, albert), tokenizer)
