"""A small model with every head, its sizes all distinct, and a tokenizer that fits it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model

LABELS = ("news", "spam", "ham", "art", "law")


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer((*SPECIALS, *(f"word{n}" for n in range(94))), BasicRules(lowercase=True))


@pytest.fixture
def config() -> ModelConfig:
    encoder = EncoderConfig(
        vocabulary=99, hidden=32, layers=3, heads=4, feed_forward=37, longest=23, dropout=0.15,
        attention_dropout=0.05, norm_epsilon=1e-7, initial_std=0.03,
    )  # fmt: skip
    return ModelConfig(
        encoder=encoder,
        masked_lm=True,
        next_sentence=True,
        predicts="class",
        labels=LABELS,
        classifier_dropout=0.2,
    )


@pytest.fixture
def model(config: ModelConfig) -> Model:
    return varied(build_model(config, seed=7))


@pytest.fixture
def saved(tmp_path: Path, model: Model, tokenizer: Tokenizer) -> Path:
    save_model(tmp_path / "model", model, tokenizer, card="# Card\n")
    return tmp_path / "model"


@pytest.fixture
def make() -> Callable[[ModelConfig], Model]:
    return lambda config: varied(build_model(config, seed=7))


def varied(model: Model) -> Model:
    """The model with biases and norms that are not what they start as."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    return model.eval()
