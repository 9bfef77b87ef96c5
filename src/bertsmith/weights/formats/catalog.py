"""The table of formats, one a family, and our own.

Wiring is free, but a class of `transformers` computes only its family's. What none of them holds is
saved in our own format: `model_type` is bertsmith, the whole config is one key of `config.json`,
and tensors have the names that they have in the model. `transformers` refuses such a folder.
"""

from __future__ import annotations

from typing import Literal

from bertsmith.network.config import ModelConfig
from bertsmith.network.families.family import FamilyName
from bertsmith.weights.formats.albert import ALBERT
from bertsmith.weights.formats.bert import BERT
from bertsmith.weights.formats.distilbert import DISTILBERT
from bertsmith.weights.formats.electra import ELECTRA
from bertsmith.weights.formats.format import Format
from bertsmith.weights.formats.modernbert import MODERNBERT
from bertsmith.weights.formats.roberta import ROBERTA, XLM_ROBERTA

FormatName = FamilyName | Literal["bertsmith"]
"""Names of formats, the values of `model_type`: families, and our own."""

FORMATS: dict[FormatName, Format] = {
    "bert": BERT,
    "albert": ALBERT,
    "roberta": ROBERTA,
    "distilbert": DISTILBERT,
    "modernbert": MODERNBERT,
    "electra": ELECTRA,
    "xlm-roberta": XLM_ROBERTA,
    "bertsmith": Format(
        classes="Bertsmith", table=(), prefix="encoder.", tied={}, keys={}, defaults={}, holds={}
    ),
}
"""Formats by name. The table of our own follows from the model: see `names`."""


def cannot_hold(config: ModelConfig) -> str | None:
    """Return why no class of `transformers` computes what the model does; None where one does."""
    encoder = config.encoder
    if reason := FORMATS[encoder.family].cannot_hold(encoder):
        return reason
    if config.pooler and encoder.pooled == "last":
        return (
            "the model reads from left to right, so its head reads the last token of a text, and "
            "transformers would read the first"
        )
    return None


def format_of(config: ModelConfig) -> FormatName:
    """Return the format that a model is saved in."""
    return config.encoder.family if cannot_hold(config) is None else "bertsmith"
