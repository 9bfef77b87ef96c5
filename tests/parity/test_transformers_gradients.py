"""One training step has the gradients that it has in transformers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForPreTraining

from bertsmith.network.batch import Target, pack
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.pretraining import MaskedLM, NextSentence
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights import names
from bertsmith.weights.folder import load_model
from bounds import close_gradients

LENGTHS = (13, 5, 23, 7, 19)


@pytest.fixture
def theirs() -> BertForPreTraining:
    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=37, max_position_embeddings=23, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager",
    )  # fmt: skip
    model = BertForPreTraining(config)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model.train()


@pytest.fixture
def ours(theirs: BertForPreTraining, tmp_path: Path) -> Model:
    theirs.save_pretrained(tmp_path)
    vocabulary = (*SPECIALS, *(f"word{n}" for n in range(94)))
    Tokenizer(vocabulary, BasicRules(lowercase=True)).save(tmp_path)
    return load_model(tmp_path)[0].train()


def test_gradients_of_both_losses_agree(theirs: BertForPreTraining, ours: Model) -> None:
    generator = torch.Generator().manual_seed(5)
    shape = (len(LENGTHS), max(LENGTHS))
    ids, words = (torch.randint(5, 99, shape, generator=generator) for _ in range(2))
    segments = torch.randint(2, shape, generator=generator)
    mask = torch.arange(shape[1]) < torch.tensor(LENGTHS)[:, None]
    chosen = (torch.rand(shape, generator=generator) < 0.3) & mask
    is_next = torch.tensor([0, 1, 1, 0, 1])

    theirs(
        input_ids=ids * mask,
        token_type_ids=segments,
        attention_mask=mask,
        labels=words.masked_fill(~chosen, -100),
        next_sentence_label=is_next,
    ).loss.backward()

    batch = pack(
        [row[:n].numpy() for row, n in zip(ids, LENGTHS, strict=True)],
        [row[:n].numpy() for row, n in zip(segments, LENGTHS, strict=True)],
    )
    at = chosen[mask].nonzero().flatten()
    targets = {
        "masked_lm": Target(positions=at, labels=words[chosen]),
        "next_sentence": Target(positions=torch.arange(5), labels=is_next),
    }
    objective = Objective({"masked_lm": MaskedLM(), "next_sentence": NextSentence()})
    objective(ours, dataclasses.replace(batch, targets=targets)).total().backward()

    expected = {name: item.grad for name, item in theirs.named_parameters()}
    mine = {name: item.grad for name, item in ours.named_parameters()}
    rows = names.rows(ours.config)
    assert {row.ours for row in rows} == mine.keys()
    assert {row.hub for row in rows} == expected.keys()
    for row in rows:
        gradient, other = mine[row.ours], expected[row.hub]
        assert isinstance(gradient, Tensor)
        assert isinstance(other, Tensor)
        assert other.abs().max() > 0 or "key.bias" in row.ours
        close_gradients(gradient, other, row.ours)
