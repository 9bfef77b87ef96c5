from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from bertsmith.batches.preparing import prepare_store
from bertsmith.batches.pretraining import PretrainingBatches, SampleConfig
from bertsmith.batches.store import TokenStore
from bertsmith.batches.survey import survey
from bertsmith.errors import StoreError
from bertsmith.models.bert import bert
from bertsmith.models.model import ModelConfig, build_model
from bertsmith.objectives.masked_lm import masked_lm
from bertsmith.objectives.next_sentence import next_sentence
from bertsmith.objectives.objective import Objective
from bertsmith.recipes.preflight import Preflight, check
from bertsmith.text.documents import Document
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.optimiser import OptimiserConfig
from bertsmith.training.schedule import Budget
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]


def stored(documents: list[Document], tokenizer: Tokenizer, folder: Path) -> TokenStore:
    prepare_store(documents, tokenizer, folder, held_out=0.0)
    return TokenStore(folder)


def checked(store: TokenStore, tokenizer: Tokenizer, budget: Budget) -> Preflight:
    encoder = bert("tiny", tokenizer.size, longest=64)
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    model = build_model(config, seed=1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    samples = SampleConfig(longest=64, tokens_per_batch=512)
    preflight = check(
        store,
        tokenizer,
        model,
        PretrainingBatches(store, tokenizer, samples, seed=0),
        Objective({"masked_lm": masked_lm, "next_sentence": next_sentence}),
        optimiser=OptimiserConfig(matrices="muon"),
        precision="fp32",
        accumulate=1,
        budget=budget,
    )
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    return preflight


def verdicts(preflight: Preflight) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in preflight.findings}


@pytest.fixture(scope="module")
def good(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return stored(invented_documents(200), tokenizer, tmp_path_factory.mktemp("good") / "store")


def test_a_good_corpus_passes(
    good: TokenStore, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    preflight = checked(good, tokenizer, Budget(steps=1000))
    assert set(verdicts(preflight).values()) == {"fine"}
    preflight.stop(good)
    found = {finding.name: finding.found for finding in preflight.findings}
    assert f"ln {tokenizer.size} = {math.log(tokenizer.size):.2f}" in found["loss at the start"]
    assert "1,000 steps" in found["the budget sees"]
    preflight.tell()
    assert "loss to get below" in capsys.readouterr().err


def test_the_survey_counts(good: TokenStore, tokenizer: Tokenizer) -> None:
    seen = survey(good, tokenizer.size)
    assert seen.repeated_sentences < 0.01
    assert seen.near_duplicates == 0.0
    ids = good.read(0, good.tokens)
    shares = torch.bincount(torch.from_numpy(ids.astype("int64"))) / len(ids)
    exact = -torch.special.xlogy(shares, shares).sum().item()
    assert seen.unigram_entropy == pytest.approx(exact, rel=1e-6)


def test_repeated_lines_stop_the_run(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The known cause of a loss stuck near 7."""
    footer = "Bade kifo muna lepo sitagu rona beki dumo nasi ve."
    documents = [
        dataclasses.replace(document, paragraphs=(document.paragraphs[0][:200], *[footer] * 9))
        for document in invented_documents(100)
    ]
    store = stored(documents, tokenizer, tmp_path / "store")
    preflight = checked(store, tokenizer, Budget(steps=100))
    assert verdicts(preflight)["sentences that repeat"] == "stop"
    with pytest.raises(
        StoreError, match=r"sentences that repeat.*9\d\d times.*boilerplate.*--force"
    ):
        preflight.stop(store)


def test_near_duplicates_are_found(tokenizer: Tokenizer, tmp_path: Path) -> None:
    documents = [d for d in invented_documents(160) if len(d.paragraphs) > 4][:60]
    changed = [
        dataclasses.replace(document, paragraphs=(*document.paragraphs[:-1], "Bado kife."))
        for document in documents[:30]
    ]
    store = stored(documents + changed, tokenizer, tmp_path / "store")
    assert survey(store, tokenizer.size).near_duplicates == pytest.approx(60 / 90, abs=0.05)


def test_documents_of_one_sentence_and_unknown_words(tokenizer: Tokenizer, tmp_path: Path) -> None:
    texts = [f"{d.paragraphs[0].partition('.')[0]} qqq xxx" for d in invented_documents(120)]
    documents = [Document(source="", line=1, paragraphs=(text,)) for text in texts]
    store = stored(documents, tokenizer, tmp_path / "store")
    assert survey(store, tokenizer.size).single_sentence_documents == 1.0
    samples = SampleConfig(longest=64, tokens_per_batch=512)
    batch = PretrainingBatches(store, tokenizer, samples, seed=0)
    assert batch.sequences == 120
    found = verdicts(checked(store, tokenizer, Budget(steps=50)))
    assert found["documents of one sentence"] == "stop"
    assert found["[UNK]"] in ("look", "stop")
    assert found["steps"] == "look"


def test_too_much_of_the_same_text_stops(good: TokenStore, tokenizer: Tokenizer) -> None:
    preflight = checked(good, tokenizer, Budget(steps=200_000))
    assert verdicts(preflight)["the budget sees"] == "stop"
