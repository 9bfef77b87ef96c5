"""The settings of networks that options state, as names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.text.config import TagColumns

Precision = Literal["bf16", "fp32"]
Positions = Literal["learned", "sinusoidal", "rotary", "none"]
Activation = Literal["gelu", "gelu_tanh"]
Norm = Literal["after", "before"]
VectorPooling = Literal["cls", "max", "mean", "mean-sqrt-length", "weighted-mean", "last-token"]
Fit = Literal["head", "tail", "head+tail", "windows"]


@dataclass(frozen=True, kw_only=True)
class Preprocessing(Config):
    """The text limits and columns of the examples that a model was fine-tuned on."""

    longest: int
    """Tokens a sequence at most."""
    long: Fit = "head"
    """The part of longer texts that was read."""
    stride: int | None = None
    """Tokens that two windows shared; None for a third of `longest`."""
    pairs: bool | None = None
    """True for pairs of texts, False for single ones, None for examples that are neither."""
    text_column: str | None = None
    """The column of the text, where it was named."""
    text_pair_column: str | None = None
    """The column of the second text, where it was named."""
    label_column: str | None = None
    """The column of the label, where it was named."""
    label_until: str | None = None
    """The sign up to which the label was kept, where there was one."""
    tags: TagColumns | None = None
    """Layout of words and tags, of a tagging model that was not trained with the defaults."""
    tags_kind: str = ""
    """Suffix of the file whose layout that is."""

    def __post_init__(self) -> None:
        if self.longest < 8:
            raise ConfigError(f"longest is {self.longest}", remedy="it must be at least 8 tokens")
        if self.stride is not None and self.stride < 0:
            raise ConfigError(f"stride is {self.stride}", remedy="it must be at least 0")
