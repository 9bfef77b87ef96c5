"""The families there are: a family is sizes and wiring of the one encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from bertsmith.models.albert import albert
from bertsmith.models.bert import bert
from bertsmith.models.encoder import EncoderConfig

Family = Literal["bert", "albert"]

FAMILIES: dict[Family, Callable[..., EncoderConfig]] = {"bert": bert, "albert": albert}
"""Functions of a size's name, the entries of the vocabulary and changes."""


def family(config: EncoderConfig) -> Family:
    """The family that an encoder belongs to: tables of a width of their own make an ALBERT."""
    return "bert" if config.embedding is None else "albert"
