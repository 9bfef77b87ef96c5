"""A small model with every head, and a tokenizer that fits it."""

from __future__ import annotations

import pytest
import torch

from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer((*SPECIALS, *(f"word{n}" for n in range(46))), BasicRules(lowercase=True))


@pytest.fixture(scope="session")
def model() -> Model:
    # more rows than pieces, as tables of the hub often have
    encoder = EncoderConfig(
        vocabulary=56, hidden=24, layers=2, heads=3, feed_forward=37, longest=29, initial_std=0.3
    )
    config = ModelConfig(
        encoder=encoder, masked_lm=True, predicts="class", labels=("news", "spam", "ham", "art")
    )
    model = build_model(config, seed=5)
    with torch.no_grad():
        model.get_parameter("heads.masked_lm.bias")[51:] = 100.0
    return model
