"""Every family with every head it can have: small, their sizes all distinct."""

from __future__ import annotations

from typing import Any

from bertsmith.models.catalog import Family
from bertsmith.models.encoder import EncoderConfig
from bertsmith.models.model import ModelConfig

LABELS = ("news", "spam", "ham", "art", "law")

_SIZES: dict[str, Any] = {
    "vocabulary": 99, "hidden": 32, "layers": 3, "heads": 4, "feed_forward": 37, "longest": 23,
    "norm_epsilon": 1e-7,
}  # fmt: skip
_NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}

ENCODERS: dict[Family, EncoderConfig] = {
    "bert": EncoderConfig(**_SIZES),
    "albert": EncoderConfig(
        **_SIZES | _NO_DROPOUT | {"layers": 6, "groups": 2}, embedding=24, activation="gelu_tanh"
    ),
}
"""One of each family."""

OTHER_SHAPES: dict[str, Any] = {"hidden": 40, "layers": 4, "heads": 5, "feed_forward": 71}

HEADS: dict[str, dict[str, Any]] = {
    "none": {},
    "masked_lm": {"masked_lm": True, "pooler": False},
    "pretraining": {"masked_lm": True, "next_sentence": True},
    "class": {"predicts": "class", "labels": LABELS},
    "classes": {"predicts": "classes", "labels": LABELS[:3]},
    "number": {"predicts": "number", "labels": ("score",)},
    "tags": {"predicts": "tags", "labels": LABELS, "pooler": False},
    "span": {"predicts": "span", "pooler": False},
    "choice": {"predicts": "choice"},
}
"""The heads of a model by the name that its test bears."""

MODELS: dict[str, ModelConfig] = {
    f"{family}-{head}": ModelConfig(encoder=encoder, **parts)
    for family, encoder in ENCODERS.items()
    for head, parts in HEADS.items()
}
"""Every family with every head."""
