"""BERT's published sizes (Devlin et al. 2018; the small ones Turc et al. 2019)."""

from __future__ import annotations

from typing import Any

from bertsmith.errors import ConfigError
from bertsmith.models.encoder import EncoderConfig

SIZES: dict[str, tuple[int, int]] = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
"""Layers and hidden size by name; heads are 64 wide, the feed-forward network four times hidden."""


def bert(size: str, vocabulary: int, **changes: Any) -> EncoderConfig:  # noqa: ANN401
    """The encoder of a published size, with some settings changed; `ConfigError` if unknown."""
    if size not in SIZES:
        raise ConfigError(f"no model size {size!r}", remedy=f"sizes are {', '.join(SIZES)}")
    layers, hidden = SIZES[size]
    settings: dict[str, Any] = {
        "vocabulary": vocabulary,
        "hidden": hidden,
        "layers": layers,
        "heads": hidden // 64,
        "feed_forward": 4 * hidden,
    }
    return EncoderConfig(**settings | changes)
