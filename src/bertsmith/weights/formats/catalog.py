"""The table of formats, one a family, and our own.

Wiring is free, but a class of `transformers` computes only its family's. What none of them holds is
saved in our own format: `model_type` is bertsmith, the whole config is one key of `config.json`,
and tensors have the names that they have in the model. `transformers` refuses such a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from bertsmith.core.lazy import LazyTable
from bertsmith.network.config import ModelConfig
from bertsmith.network.families.family import FamilyName
from bertsmith.weights.formats.format import Format

FormatName = FamilyName | Literal["bertsmith"]
"""Names of formats, the values of `model_type`: families, and our own."""

_OWN = Format(
    classes="Bertsmith", table=(), prefix="encoder.", tied={}, keys={}, defaults={}, holds={}
)
"""Our own, whose table follows from the model: see `names`."""


def _format(name: FormatName) -> Format:
    match name:
        case "bert":
            from bertsmith.weights.formats.bert import BERT

            return BERT
        case "albert":
            from bertsmith.weights.formats.albert import ALBERT

            return ALBERT
        case "roberta":
            from bertsmith.weights.formats.roberta import ROBERTA

            return ROBERTA
        case "distilbert":
            from bertsmith.weights.formats.distilbert import DISTILBERT

            return DISTILBERT
        case "modernbert":
            from bertsmith.weights.formats.modernbert import MODERNBERT

            return MODERNBERT
        case "electra":
            from bertsmith.weights.formats.electra import ELECTRA

            return ELECTRA
        case "xlm-roberta":
            from bertsmith.weights.formats.roberta import XLM_ROBERTA

            return XLM_ROBERTA
        case "bertsmith":
            return _OWN


FORMATS: Mapping[FormatName, Format] = LazyTable((*get_args(FamilyName), "bertsmith"), _format)
"""Formats by name."""


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
