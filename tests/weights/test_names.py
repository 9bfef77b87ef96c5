"""The table of names goes both ways and tells the truth about both models."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model
from bertsmith.weights import names
from bertsmith.weights.formats.catalog import FORMATS


def test_table_is_reversible(config: ModelConfig) -> None:
    rows = names.rows(config)
    to_hub = {row.ours: row.hub for row in rows}
    to_ours = {row.hub: row.ours for row in rows}
    assert len(to_hub) == len(to_ours) == len(rows) == 5 + 3 * 16 + 2 + 5 + 2 + 2
    assert {to_ours[hub]: hub for hub in to_ours} == to_hub


def test_table_has_our_tensors_and_shapes(config: ModelConfig) -> None:
    with torch.device("meta"):
        state = Model(config).state_dict()
    assert {row.ours: names.shape(row, config) for row in names.rows(config)} == {
        name: tuple(tensor.shape) for name, tensor in state.items()
    }


def test_table_has_the_tensors_of_transformers(config: ModelConfig) -> None:
    there = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=37, max_position_embeddings=23, num_labels=5,
    )  # fmt: skip
    with torch.device("meta"):
        state = (
            BertForPreTraining(there).state_dict()
            | BertForSequenceClassification(there).state_dict()
        )
    for copy in FORMATS["bert"].tied:
        del state[copy]
    assert {row.hub: names.shape(row, config) for row in names.rows(config)} == {
        name: tuple(tensor.shape) for name, tensor in state.items()
    }


def test_rows_leave_out_the_parts_a_model_has_not(config: ModelConfig) -> None:
    bare = dataclasses.replace(
        config, pooler=False, masked_lm=False, next_sentence=False, predicts=None, labels=()
    )
    assert {row.part for row in names.rows(bare)} == {"encoder"}


@pytest.mark.parametrize(
    ("written", "standard"),
    [
        ("embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"),
        (
            "bert.encoder.layer.2.output.LayerNorm.beta",
            "bert.encoder.layer.2.output.LayerNorm.bias",
        ),
        ("pooler.dense.bias", "bert.pooler.dense.bias"),
        ("bert.pooler.dense.bias", "bert.pooler.dense.bias"),
        ("cls.predictions.transform.LayerNorm.gamma", "cls.predictions.transform.LayerNorm.weight"),
        ("classifier.weight", "classifier.weight"),
    ],
)
def test_standard_names(written: str, standard: str) -> None:
    assert names.standard(written) == standard
