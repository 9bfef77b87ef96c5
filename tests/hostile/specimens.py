"""Honest folders of every family and head that we write, small."""

from __future__ import annotations

from pathlib import Path

import torch

from bertsmith.layers.after_pooling import Dense, UnitLength
from bertsmith.models.encoder import EncoderConfig
from bertsmith.models.model import ModelConfig, build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model
from bertsmith.weights.sentence_folder import SentenceSettings
from bertsmith.weights.sentence_writing import save_sentence_folder

_SYLLABLES = [a + b for a in "bdfgk" for b in "aeiou"]


def specimens(place: Path) -> dict[str, Path]:
    """The folders by name, made in `place`."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *_SYLLABLES]
    tokenizer = Tokenizer([*pieces, *(f"##{s}" for s in _SYLLABLES)], BasicRules(lowercase=True))
    bert = EncoderConfig(
        vocabulary=tokenizer.size, hidden=12, layers=2, heads=3, feed_forward=16, longest=20
    )
    albert = EncoderConfig(
        vocabulary=tokenizer.size, hidden=12, layers=3, heads=3, feed_forward=16, longest=20,
        embedding=8, groups=1, activation="gelu_tanh", dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    configs = {
        "bert": ModelConfig(encoder=bert, masked_lm=True, next_sentence=True),
        "albert": ModelConfig(encoder=albert, masked_lm=True, next_sentence=True),
        "classes": ModelConfig(encoder=bert, predicts="class", labels=("a", "b", "c")),
        "tags": ModelConfig(encoder=bert, pooler=False, predicts="tags", labels=("O", "B", "I")),
        "spans": ModelConfig(encoder=albert, pooler=False, predicts="span"),
    }
    for name, config in configs.items():
        save_model(place / name, build_model(config, seed=1), tokenizer)
    after = (Dense(torch.ones(5, 24), torch.zeros(5), "Tanh"), UnitLength())
    settings = SentenceSettings(
        network=place, pool=("cls", "mean"), after=after, longest=16, prompts={"query": "ba "}
    )
    bare = build_model(ModelConfig(encoder=bert), seed=1)
    save_sentence_folder(place / "sentence", bare, tokenizer, settings)
    return {name: place / name for name in (*configs, "sentence")}
