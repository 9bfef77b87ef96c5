"""BERT's published sizes (Devlin et al. 2018; the small ones Turc et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bertsmith.core.errors import ConfigError
from bertsmith.network.encoder import EncoderConfig


class Size(NamedTuple):
    """A published size."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int


def usual(layers: int, hidden: int) -> Size:
    """A size whose heads are 64 wide and whose feed-forward network is four times `hidden`."""
    return Size(layers, hidden, hidden // 64, 4 * hidden)


SIZES: dict[str, Size] = {
    "tiny": usual(2, 128),
    "mini": usual(4, 256),
    "small": usual(4, 512),
    "medium": usual(8, 512),
    "base": usual(12, 768),
    "large": usual(24, 1024),
    # no weights were published of it (Lan et al. 2019, table 1)
    "xlarge": Size(24, 2048, 16, 8192),
    # BERTs that were taught by larger ones: Jiao et al. 2019, Wang et al. 2020
    "tinybert-4-312": Size(4, 312, 12, 1200),
    "tinybert-6-768": usual(6, 768),
    "minilm-6-384": Size(6, 384, 12, 1536),
    "minilm-12-384": Size(12, 384, 12, 1536),
}
"""Sizes by name."""


def bert(size: str, vocabulary: int, **changes: Any) -> EncoderConfig:  # noqa: ANN401
    """The encoder of a published size, with some settings changed; `ConfigError` if unknown."""
    return sized("BERT", SIZES, size, {"vocabulary": vocabulary} | changes)


def sized(
    name: str, sizes: Mapping[str, Size], size: str, settings: Mapping[str, Any]
) -> EncoderConfig:
    """The encoder of one of a family's sizes, with these settings."""
    if size not in sizes:
        raise ConfigError(f"no {name} of the size {size!r}", remedy=f"sizes are {', '.join(sizes)}")
    wiring = {"family": name.lower(), **sizes[size]._asdict(), **settings}
    return EncoderConfig(**wiring)
