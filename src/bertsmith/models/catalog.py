"""The families there are: a family is sizes and wiring of the one encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from bertsmith.models.albert import albert
from bertsmith.models.bert import bert
from bertsmith.models.distilbert import distilbert
from bertsmith.models.encoder import EncoderConfig
from bertsmith.models.modernbert import modernbert
from bertsmith.models.roberta import roberta

Family = Literal["bert", "albert", "roberta", "distilbert", "modernbert"]

FAMILIES: dict[Family, Callable[..., EncoderConfig]] = {
    "bert": bert,
    "albert": albert,
    "roberta": roberta,
    "distilbert": distilbert,
    "modernbert": modernbert,
}
"""Functions of a size's name, the entries of the vocabulary and changes."""


def family(config: EncoderConfig) -> Family:
    """The family that an encoder belongs to, by its wiring.

    Tables of a width of their own make an ALBERT, positions that begin later a RoBERTa, a ReLU
    above the first token a DistilBERT, norms before each sublayer a ModernBERT.
    """
    if config.embedding is not None:
        return "albert"
    if config.position_offset:
        return "roberta"
    if config.norm == "before":
        return "modernbert"
    return "distilbert" if config.pooling == "relu" else "bert"
