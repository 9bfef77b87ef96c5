"""ModernBERT's published sizes (Warner et al. 2024, table 4), and small ones to try things on."""

from __future__ import annotations

from typing import Any

from bertsmith.core.errors import ConfigError
from bertsmith.network.encoder import EncoderConfig
from bertsmith.network.families.bert import Size, sized

SIZES: dict[str, Size] = {
    "tiny": Size(3, 128, 2, 192),
    "mini": Size(6, 256, 4, 384),
    "small": Size(6, 512, 8, 768),
    "medium": Size(12, 512, 8, 768),
    "base": Size(22, 768, 12, 1152),
    "large": Size(28, 1024, 16, 2624),
}
"""Sizes by name; those below base are ours."""


def modernbert(size: str, vocabulary: int, **changes: Any) -> EncoderConfig:  # noqa: ANN401
    """The encoder of a published size, with some settings changed; `ConfigError` if unknown.

    Rotary positions for 8,192 tokens, norms before, gated feed-forward, no biases; one layer in
    three sees all, the others 64 tokens on either side. There is no dropout.
    """
    if changes.get("positions", "rotary") != "rotary":
        raise ConfigError(
            "a ModernBERT has rotary positions", remedy="set network.positions to rotary"
        )
    wiring: dict[str, Any] = {
        "longest": 8192,
        "segments": 0,
        "positions": "rotary",
        "theta": 160_000.0,
        "local_theta": 10_000.0,
        "window": 128,
        "global_every": 3,
        "gated": True,
        "norm": "before",
        "biases": False,
        "pooling": "gelu",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "norm_epsilon": 1e-5,
    }
    return sized("ModernBERT", SIZES, size, {"vocabulary": vocabulary} | wiring | changes)
