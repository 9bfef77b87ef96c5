"""A causal encoder and its left-to-right loss give what transformers' decoder gives."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertLMHeadModel

from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.model import Model
from bertsmith.objectives.pretraining import LeftToRight
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import load_model
from bounds import close_gradients, close_losses, close_to_transformers
from parity.comparing import every_state

LENGTHS = (13, 2, 23, 7, 19)
TOKENIZER = Tokenizer((*SPECIALS, *(f"word{n}" for n in range(94))), BasicRules(lowercase=True))
CONFIG = BertConfig(
    vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
    intermediate_size=37, max_position_embeddings=23, layer_norm_eps=1e-7,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager",
)  # fmt: skip


@pytest.fixture
def both(tmp_path: Path) -> tuple[Model, BertLMHeadModel]:
    """The same random weights here and there."""
    torch.manual_seed(3)
    plain = BertForMaskedLM(CONFIG)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    plain.save_pretrained(tmp_path / "model")
    TOKENIZER.save(tmp_path / "model")
    loaded, _ = load_model(tmp_path / "model")
    encoder = dataclasses.replace(loaded.config.encoder, causal=True)
    ours = Model(dataclasses.replace(loaded.config, encoder=encoder))
    ours.load_state_dict(loaded.state_dict())
    theirs = BertLMHeadModel(BertConfig.from_dict(CONFIG.to_dict() | {"is_decoder": True}))
    theirs.load_state_dict(plain.state_dict())
    return ours.train(), theirs.train()


def sequences() -> tuple[Batch, dict[str, Tensor]]:
    """The same sequences packed, and padded with labels as transformers wants them."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(5, 99, (len(LENGTHS), max(LENGTHS)), generator=generator)
    mask = torch.arange(ids.shape[1]) < torch.tensor(LENGTHS)[:, None]
    rows = [row[:n].numpy() for row, n in zip(ids, LENGTHS, strict=True)]
    packed = pack(rows, [row * 0 for row in rows])
    last = packed.offsets[1:] - 1
    at = torch.tensor([n for n in range(packed.tokens) if n not in last.tolist()])
    packed = dataclasses.replace(
        packed, targets={"left_to_right": Target(positions=at, labels=packed.ids[at + 1])}
    )
    padded = {
        "input_ids": ids * mask, "attention_mask": mask, "labels": ids.masked_fill(~mask, -100),
    }  # fmt: skip
    return packed, padded


def test_hidden_states_loss_and_gradients(both: tuple[Model, BertLMHeadModel]) -> None:
    ours, theirs = both
    packed, padded = sequences()
    out = theirs(**padded, output_hidden_states=True)
    encoded = ours.encoder(packed, taps=every_state(ours))
    states = encoded.states.values()
    assert len(states) == len(out.hidden_states) == 4
    for mine, other in zip(states, out.hidden_states, strict=True):
        close_to_transformers(mine, other[padded["attention_mask"]])
    loss = LeftToRight()(ours, encoded, packed, packed.targets["left_to_right"])
    mean = loss.sum / loss.count
    close_losses(mean, out.loss)
    mean.backward()
    out.loss.backward()
    pairs = {
        "encoder.embeddings.tokens.weight": "bert.embeddings.word_embeddings.weight",
        "encoder.blocks.0.attention.key.weight": "bert.encoder.layer.0.attention.self.key.weight",
        "encoder.blocks.2.attention.query.weight":
            "bert.encoder.layer.2.attention.self.query.weight",
        "heads.masked_lm.bias": "cls.predictions.bias",
    }  # fmt: skip
    for name, their_name in pairs.items():
        found, expected = (
            model.get_parameter(item).grad for model, item in ((ours, name), (theirs, their_name))
        )
        assert found is not None
        assert expected is not None
        close_gradients(found, expected, name)


@torch.no_grad()
def test_inference_is_causal_too(both: tuple[Model, BertLMHeadModel]) -> None:
    ours, theirs = (model.eval() for model in both)
    packed, padded = sequences()
    logits = ours.masked_lm(ours.encoder(packed).last)
    close_to_transformers(logits, theirs(**padded).logits[padded["attention_mask"]])
