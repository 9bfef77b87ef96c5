"""ALBERT's published sizes (Lan et al. 2019, table 1), and small ones to try things on."""

from __future__ import annotations

from typing import Any

from bertsmith.errors import ConfigError
from bertsmith.models.encoder import EncoderConfig

SIZES: dict[str, tuple[int, int, int]] = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
    "xlarge": (24, 2048, 16),
    "xxlarge": (12, 4096, 64),
}
"""Layers, hidden size and heads by name; those below base are BERT's, not published as ALBERTs."""

_EMBEDDING = 128


def albert(size: str, vocabulary: int, **changes: Any) -> EncoderConfig:  # noqa: ANN401
    """The encoder of a published size, with some settings changed; `ConfigError` if unknown.

    Tables are 128 wide, all layers are one, and there is no dropout, as in the second published
    version.
    """
    if size not in SIZES:
        raise ConfigError(f"no ALBERT of the size {size!r}", remedy=f"sizes are {', '.join(SIZES)}")
    layers, hidden, heads = SIZES[size]
    settings: dict[str, Any] = {
        "vocabulary": vocabulary,
        "embedding": _EMBEDDING,
        "hidden": hidden,
        "layers": layers,
        "groups": 1,
        "heads": heads,
        "feed_forward": 4 * hidden,
        "activation": "gelu_tanh",
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
    return EncoderConfig(**settings | changes)
