"""The record of a family: its sizes, its wiring, its heads, and its published models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

FamilyName = Literal[
    "bert", "albert", "roberta", "distilbert", "modernbert", "electra", "xlm-roberta"
]
"""Names of families, those of `model_type` on the hub; `catalog` has the record of each."""


class Size(NamedTuple):
    """The size of an encoder."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    embedding: int | None = None
    """Width of the token table; None for one as wide as the encoder."""


_HEAD_WIDTH = 64
OTHER_SIZES = f"layers and a width that is a multiple of {_HEAD_WIDTH}, as 4/192"
"""The sizes without a name, in words."""
_LAYERS_AND_WIDTH = re.compile(r"([1-9]\d{0,2})/([1-9]\d{0,4})")


def usual(layers: int, hidden: int) -> Size:
    """Return a size of 64-wide heads and a feed-forward network four times as wide as `hidden`."""
    return Size(layers, hidden, hidden // _HEAD_WIDTH, 4 * hidden)


class Preset(NamedTuple):
    """A published model."""

    size: str
    vocabulary: int
    published: str
    """Millions of parameters as published, a figure or a range."""
    masked_lm: bool = False
    """True if that count has the masked-LM head in it, beside the pooler."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of encoders. The encoder itself is one for all: a family is settings of it."""

    title: str
    """Its name as published."""
    sizes: Mapping[str, Size]
    """Published sizes by name."""
    wiring: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the encoder (`EncoderConfig`) in which it differs from a BERT."""
    presets: Mapping[str, Preset] = field(default_factory=dict)
    """Published models by name."""
    pairs: Literal["next_sentence", "sentence_order"] | None = None
    """The prediction of its head for pairs of texts; None without such a head."""
    pooler: Literal["encoder", "sequences", "heads"] = "encoder"
    """The owner of the pooler: the encoder; the heads that read a sequence; or all heads of
    tasks, those that read every token too, and then it ends in a norm."""
    pooler_dropout: bool = False
    """True if a classifier drops values before its pooler too."""
    replaced_tokens: bool = False
    """True if it has a head that detects replaced tokens."""
    exact_heads: bool = False
    """True if masked-LM head and pooler keep to the exact GELU, whatever the encoder has."""
    dropout: float = 0.1
    """Share of values that a model pre-trained here drops when it is fine-tuned."""

    def size(self, name: str) -> Size | None:
        """Return the size of a name, or of layers and width, as 4/192; None if there is none."""
        if name in self.sizes:
            return self.sizes[name]
        match = _LAYERS_AND_WIDTH.fullmatch(name)
        if match is None or int(match[2]) % _HEAD_WIDTH:
            return None
        return usual(int(match[1]), int(match[2]))
