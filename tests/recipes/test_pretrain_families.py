"""RoBERTas and DistilBERTs are pre-trained by the same recipe, and go on from a classifier."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from bertsmith.cli.main import main
from bertsmith.core.errors import ConfigError
from bertsmith.network.batch import pack
from bertsmith.network.config import ModelConfig, encoder_of
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.pretrain.config import PretrainConfig, PretrainSettings
from bertsmith.recipes.pretrain.published import roberta
from bertsmith.recipes.pretrain.recipe import pretrain
from bertsmith.recipes.pretrain.starting import continued
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model
from bounds import close_to_transformers
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "store"
    prepare_store(invented_documents(30), tokenizer, folder, held_out=0.1)
    return folder


def settings_of(kind: FamilyName) -> PretrainSettings:
    settings = roberta("tiny")
    return replace(
        settings,
        network=replace(settings.network, family=kind, max_positions=61),
        samples=replace(settings.samples, max_length=61, tokens_per_batch=500),
        gradient_accumulation=1,
        measurements=0,
    )


def continued_settings(parent: Path) -> PretrainSettings:
    """What a run that goes on has by itself, but for the size of its batches."""
    settings = continued(parent)
    samples = replace(settings.samples, tokens_per_batch=500)
    return replace(settings, samples=samples, measurements=0)


@torch.no_grad()
def same_as_theirs(model: Model, folder: Path) -> None:
    theirs, told = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), told
    assert theirs.config.model_type == model.config.encoder.family
    ids = torch.arange(4, 44)
    packed = pack([ids.numpy()], [(ids * 0).numpy()])
    mine = model.masked_lm(model.encoder(packed).last)
    close_to_transformers(mine, theirs.eval()(ids[None]).logits[0])


@pytest.mark.parametrize("kind", ["roberta", "distilbert", "xlm-roberta"])
def test_what_is_trained_loads_in_transformers(
    store: Path,
    tmp_path: Path,
    tokenizer: Tokenizer,
    kind: FamilyName,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = pretrain(
        PretrainConfig(
            store=store, out=tmp_path / "run", model="tiny", steps=3, settings=settings_of(kind)
        )
    )
    model, _ = load_model(tmp_path / "run" / "model")
    assert model.config.encoder.family == kind
    assert model.config.encoder.position_offset == (tokenizer.pad_id + 1) * ("roberta" in kind)
    assert model.config.encoder.dropout == 0.1
    same_as_theirs(model, first.folder / "model")
    said = " ".join(capsys.readouterr().err.split()).lower()
    assert f"model_type {kind}, which {kind.replace('-', '')}model of transformers loads" in said


def test_a_classifier_goes_on_as_a_language_model(
    store: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """The layer between its first token and its classes is no pooler that could be kept."""
    encoder = encoder_of("distilbert", "tiny", tokenizer.size, longest=61)
    config = ModelConfig(encoder=encoder, predicts="class", labels=("a", "b"))
    save_model(tmp_path / "classifier", build_model(config, seed=1), tokenizer)
    again = pretrain(
        PretrainConfig(
            store=store,
            out=tmp_path / "run",
            from_=tmp_path / "classifier",
            steps=2,
            settings=continued_settings(tmp_path / "classifier"),
        )
    )
    model, _ = load_model(again.folder / "model")
    assert model.config == ModelConfig(encoder=encoder, pooler=False, masked_lm=True)
    same_as_theirs(model, again.folder / "model")


@pytest.mark.parametrize("kind", ["roberta", "distilbert"])
def test_pairs_are_refused(store: Path, tmp_path: Path, kind: FamilyName) -> None:
    settings = settings_of(kind)
    paired = replace(settings, samples=replace(settings.samples, text="next_sentence"))
    with pytest.raises(ConfigError, match="no next-sentence head"):
        pretrain(
            PretrainConfig(
                store=store, out=tmp_path / "run", model="tiny", steps=3, settings=paired
            )
        )


@pytest.mark.parametrize(
    ("kind", "changes", "left_to_right", "reason"),
    [
        ("bert", {"positions": "rotary"}, False, "positions set to 'rotary'"),
        ("bert", {"norm": "before", "segments": 0}, True, "norm set to 'before'"),
        ("bert", {"window": 8, "global_every": 2}, False, "window set to 8"),
        ("roberta", {}, True, "causal set to True"),
        ("modernbert", {"gated": False, "biases": True}, False, "gated set to False"),
    ],
)
def test_what_transformers_cannot_hold_is_said_and_saved_as_our_own(
    store: Path,
    tmp_path: Path,
    kind: FamilyName,
    changes: dict[str, Any],
    left_to_right: bool,
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = settings_of(kind)
    settings = replace(
        settings,
        network=replace(settings.network, **changes),
        samples=replace(settings.samples, left_to_right=left_to_right),
    )
    first = pretrain(
        PretrainConfig(store=store, out=tmp_path / "run", model="tiny", steps=3, settings=settings)
    )
    said = " ".join(capsys.readouterr().err.split())
    before, _ = said.split("pre-training", 1)
    assert "model_type bertsmith, which only bertsmith loads: " in before
    assert f"cannot have {reason}" in before
    with pytest.raises(ValueError, match="bertsmith"):
        AutoModelForMaskedLM.from_pretrained(first.folder / "model")
    model, _ = load_model(first.folder / "model")
    assert model.config.encoder.family == kind
    for name, tensor in first.network.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    text = "Ba ke lo" if left_to_right else "Ba [MASK] lo."
    (tmp_path / "asked.txt").write_text(text + "\n", encoding="utf-8")
    assert main(["predict", str(first.folder / "model"), str(tmp_path / "asked.txt")]) == 0
    assert "ba" in capsys.readouterr().out.lower()
    again = pretrain(
        PretrainConfig(
            store=store,
            out=tmp_path / "more",
            from_=first.folder / "model",
            steps=2,
            settings=continued_settings(first.folder / "model"),
        )
    )
    assert again.network.config.encoder.family == kind
    assert again.network.config.encoder.positions == model.config.encoder.positions
