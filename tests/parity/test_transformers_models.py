"""Small random models give what transformers gives, whoever saved them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
)

from bertsmith.network.batch import pack
from bertsmith.network.config import Activation, EncoderConfig, ModelConfig, Positions
from bertsmith.network.model import Model, build_model
from bertsmith.weights.folder import load_model, save_model
from bounds import close_when_regrouped
from families import LABELS
from parity.comparing import LENGTHS, TOKENIZER, compare, sequences, varied

ENCODER = EncoderConfig(
    vocabulary=99, hidden=32, layers=3, heads=4, feed_forward=37, longest=23, norm_epsilon=1e-7
)
HEADS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "pretraining": (
        BertForPreTraining, AutoModelForPreTraining, {"masked_lm": True, "next_sentence": True},
    ),
    "masked_lm": (BertForMaskedLM, AutoModelForMaskedLM, {"masked_lm": True, "pooler": False}),
    "classify": (
        BertForSequenceClassification, AutoModelForSequenceClassification,
        {"predicts": "class", "labels": LABELS},
    ),
    "none": (BertModel, AutoModel, {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["pretraining", "none"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh"])
def test_what_transformers_saved_gives_its_results_here(
    tmp_path: Path, kind: str, activation: str
) -> None:
    their_class, _, parts = HEADS[kind]
    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=37, max_position_embeddings=23, hidden_act=activation,
        id2label=dict(enumerate(LABELS)), label2id={name: n for n, name in enumerate(LABELS)},
        layer_norm_eps=1e-7, attn_implementation="eager",
    )  # fmt: skip
    theirs = varied(their_class(config))
    theirs.save_pretrained(tmp_path / "model")
    TOKENIZER.save(tmp_path / "model")
    ours, _ = load_model(tmp_path / "model")
    tanh: Activation = "gelu" if activation == "gelu" else "gelu_tanh"
    expected = dataclasses.replace(ENCODER, activation=tanh)
    assert ours.config == ModelConfig(encoder=expected, **parts)
    compare(ours, theirs)


@pytest.mark.parametrize("kind", ["pretraining", "none"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_what_we_saved_gives_our_results_in_transformers(
    tmp_path: Path, kind: str, positions: Positions, activation: Activation
) -> None:
    their_class, auto_class, parts = HEADS[kind]
    encoder = dataclasses.replace(ENCODER, positions=positions, activation=activation)
    ours = varied(build_model(ModelConfig(encoder=encoder, **parts), seed=11))
    save_model(tmp_path / "model", ours, TOKENIZER)
    theirs, told = auto_class.from_pretrained(
        tmp_path / "model", output_loading_info=True, attn_implementation="eager"
    )
    assert type(theirs) is their_class
    assert not any(told.values()), told
    assert theirs.config.architectures == [their_class.__name__]
    if kind == "classify":
        assert tuple(theirs.config.id2label.values()) == LABELS
    compare(ours, theirs.eval())


def test_a_model_without_segments_gives_our_results_in_transformers(tmp_path: Path) -> None:
    encoder = dataclasses.replace(ENCODER, segments=0)
    ours = varied(build_model(ModelConfig(encoder=encoder), seed=11))
    save_model(tmp_path / "model", ours, TOKENIZER)
    compare(ours, AutoModel.from_pretrained(tmp_path / "model").eval())


def test_all_heads_at_once_load_in_each_class(tmp_path: Path) -> None:
    config = ModelConfig(
        encoder=ENCODER, masked_lm=True, next_sentence=True, predicts="class", labels=LABELS
    )
    ours = varied(build_model(config, seed=11))
    save_model(tmp_path / "model", ours, TOKENIZER)
    for their_class, _, parts in HEADS.values():
        theirs, told = their_class.from_pretrained(tmp_path / "model", output_loading_info=True)
        assert not told["missing_keys"]
        assert not told["mismatched_keys"]
        part = Model(ModelConfig(encoder=ENCODER, **parts))
        part.load_state_dict(ours.state_dict(), strict=False)
        compare(part.eval(), theirs.eval())


def test_what_transformers_saves_of_ours_is_ours_again(tmp_path: Path) -> None:
    encoder = dataclasses.replace(ENCODER, positions="sinusoidal")
    config = ModelConfig(encoder=encoder, predicts="class", labels=LABELS)
    ours = varied(build_model(config, seed=11))
    save_model(tmp_path / "ours", ours, TOKENIZER)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    TOKENIZER.save(tmp_path / "theirs")
    assert AutoConfig.from_pretrained(tmp_path / "theirs").bertsmith_positions == "sinusoidal"
    back, _ = load_model(tmp_path / "theirs")
    assert back.config == config
    assert all(
        torch.equal(back.state_dict()[name], value) for name, value in ours.state_dict().items()
    )


@torch.no_grad()
def test_packed_sequences_are_as_one_at_a_time() -> None:
    config = ModelConfig(encoder=ENCODER, masked_lm=True, predicts="class", labels=LABELS)
    model = varied(build_model(config, seed=11))
    packed, _ = sequences()
    whole = model.encoder(packed)
    for number, begin in enumerate(packed.starts.tolist()):
        span = slice(begin, begin + LENGTHS[number])
        alone = pack([packed.ids[span].numpy()], [packed.segments[span].numpy()])
        single = model.encoder(alone)
        close_when_regrouped(single.last, whole.last[span])
        mine, other = model.classify(single, alone), model.classify(whole, packed)[[number]]
        close_when_regrouped(mine, other)
