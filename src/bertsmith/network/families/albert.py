"""ALBERT's published sizes (Lan et al. 2019, table 1), and small ones to try things on."""

from __future__ import annotations

from typing import Any

from bertsmith.network.encoder import EncoderConfig
from bertsmith.network.families.bert import Size, sized, usual

SIZES: dict[str, Size] = {
    "tiny": usual(2, 128),
    "mini": usual(4, 256),
    "small": usual(4, 512),
    "medium": usual(8, 512),
    "base": usual(12, 768),
    "large": usual(24, 1024),
    "xlarge": Size(24, 2048, 16, 8192),
    "xxlarge": usual(12, 4096),
}
"""Sizes by name; those below base are BERT's, not published as ALBERTs."""


def albert(size: str, vocabulary: int, **changes: Any) -> EncoderConfig:  # noqa: ANN401
    """The encoder of a published size, with some settings changed; `ConfigError` if unknown.

    Tables are 128 wide, all layers are one, and there is no dropout, as in the second published
    version.
    """
    wiring: dict[str, Any] = {
        "embedding": 128,
        "groups": 1,
        "activation": "gelu_tanh",
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
    return sized("ALBERT", SIZES, size, {"vocabulary": vocabulary} | wiring | changes)
