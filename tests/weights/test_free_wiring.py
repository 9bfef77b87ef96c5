"""Any wiring can be built and trained; what no class of transformers holds is saved as our own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.weights.folder import load_as, load_model, save_model, start_from
from bertsmith.weights.formats.catalog import cannot_hold, format_of
from families import ENCODERS, MODELS, TOKENIZERS

GPT: dict[str, Any] = {"causal": True, "norm": "before"}
WIRINGS: dict[str, tuple[EncoderConfig, str]] = {
    "causal roberta": (
        dataclasses.replace(ENCODERS["roberta"], causal=True),
        "RobertaModel of transformers cannot have causal set to True",
    ),
    "pre-norm gpt": (
        dataclasses.replace(ENCODERS["bert"], segments=0, **GPT),
        "BertModel of transformers cannot have norm set to 'before'",
    ),
    "rotary bert": (
        dataclasses.replace(ENCODERS["bert"], positions="rotary", theta=500.0),
        "BertModel of transformers cannot have positions set to 'rotary'",
    ),
    "bert of windows": (
        dataclasses.replace(ENCODERS["bert"], window=6, global_every=2, biases=False, gated=True),
        "BertModel of transformers cannot have window set to 6",
    ),
    "sinusoidal pre-norm albert": (
        dataclasses.replace(ENCODERS["albert"], norm="before", positions="sinusoidal"),
        "AlbertModel of transformers cannot have norm set to 'before'",
    ),
    "distilbert of segments": (
        dataclasses.replace(ENCODERS["distilbert"], segments=2),
        "DistilBertModel of transformers cannot have segments set to 2",
    ),
    "causal xlm-roberta": (
        dataclasses.replace(ENCODERS["xlm-roberta"], causal=True),
        "XLMRobertaModel of transformers cannot have causal set to True",
    ),
    "electra of wide tables": (
        dataclasses.replace(ENCODERS["electra"], embedding=32),
        "ElectraModel of transformers has no projection of tables as wide as the encoder",
    ),
    "modernbert of all tokens": (
        dataclasses.replace(ENCODERS["modernbert"], window=None),
        "ModernBertModel of transformers cannot have window set to None",
    ),
}


def batch(encoder: EncoderConfig) -> Batch:
    ids = [np.random.default_rng(n).integers(5, 99, n) for n in (13, 1, 22, 7)]
    packed = pack(ids, [id_ % 2 for id_ in ids])
    at = torch.tensor([2, 5, 14, 20, 40])
    name = "left_to_right" if encoder.causal else "masked_lm"
    return dataclasses.replace(packed, targets={name: Target(positions=at, labels=packed.ids[at])})


def trained(config: ModelConfig) -> Model:
    """A model after two steps in which its loss falls."""
    model = build_model(config, seed=1).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        torch.manual_seed(1)
        loss = PRETRAINING(model, batch(config.encoder)).total()
        losses.append(float(loss.detach()))
        optimiser.zero_grad()
        if len(losses) < 3:
            loss.backward()
            optimiser.step()
    assert losses[2] < losses[0]
    return model.eval()


@pytest.mark.parametrize("name", WIRINGS)
def test_it_is_trained_saved_loaded_and_refused_by_transformers(name: str, tmp_path: Path) -> None:
    encoder, reason = WIRINGS[name]
    config = ModelConfig(encoder=encoder, pooler=False, masked_lm=True)
    assert cannot_hold(config) == reason
    model, folder = trained(config), tmp_path / "model"
    save_model(folder, model, TOKENIZERS[encoder.family])
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert said["model_type"] == "bertsmith"
    back, _ = load_model(folder)
    assert back.config == config
    states: list[dict[str, Tensor]] = [item.state_dict() for item in (model, back)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    with torch.no_grad():
        one, other = (item.encoder(batch(encoder)).last for item in (model, back))
    assert torch.equal(one, other)
    save_model(tmp_path / "again", back, TOKENIZERS[encoder.family])
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name
    for kind in ("Auto", "Bert", "Roberta", "Albert", "DistilBert", "ModernBert", "Electra"):
        with pytest.raises((ValueError, KeyError), match="bertsmith"):
            getattr(transformers, f"{kind}Model").from_pretrained(folder)


@pytest.mark.parametrize(
    "name", ["pre-norm gpt", "rotary bert", "distilbert of segments", "modernbert of all tokens"]
)
def test_it_goes_on_with_other_heads(name: str, tmp_path: Path) -> None:
    encoder, _ = WIRINGS[name]
    model = trained(ModelConfig(encoder=encoder, pooler=False, masked_lm=True))
    save_model(tmp_path / "model", model, TOKENIZERS[encoder.family])
    started, tokenizer = start_from(tmp_path / "model", predicts="class", labels=("a", "b"))
    assert started.config.encoder.pooled == ("last" if encoder.causal else "first")
    packed = batch(encoder)
    with torch.no_grad():
        expected = started.classify(started.encoder(packed), packed)
    assert expected.shape == (4, 2)
    save_model(tmp_path / "classifier", started, tokenizer)
    with torch.no_grad():
        back, _ = load_model(tmp_path / "classifier")
        assert torch.equal(back.classify(back.encoder(packed), packed), expected)
    tagger, _ = start_from(tmp_path / "classifier", predicts="tags", labels=("a", "b"))
    for key, tensor in model.encoder.state_dict().items():
        assert torch.equal(tagger.encoder.state_dict()[key], tensor), key
    config = ModelConfig(encoder=encoder, pooler=False, masked_lm=True)
    again, _ = load_as(tmp_path / "model", config)
    for key, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key


@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_hub_are_held_by_their_families(name: str) -> None:
    assert cannot_hold(MODELS[name]) is None
    assert format_of(MODELS[name]) == name.rpartition("-")[0]
