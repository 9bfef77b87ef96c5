"""DistilBERT's published size (Sanh et al. 2019), and small ones to try things on."""

from __future__ import annotations

from typing import Any

from bertsmith.network.encoder import EncoderConfig
from bertsmith.network.families.bert import sized, usual

SIZES = {
    "tiny": usual(2, 128),
    "mini": usual(4, 256),
    "small": usual(4, 512),
    "base": usual(6, 768),
}
"""Layers and hidden size by name; those below base are BERT's, not published as DistilBERTs."""


def distilbert(size: str, vocabulary: int, **changes: Any) -> EncoderConfig:  # noqa: ANN401
    """The encoder of a published size, with some settings changed; `ConfigError` if unknown.

    A BERT without segments, and with a ReLU where heads read the first token.
    """
    wiring: dict[str, Any] = {"segments": 0, "pooling": "relu"}
    return sized("DistilBERT", SIZES, size, {"vocabulary": vocabulary} | wiring | changes)
