"""The table of families, and the published models by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from bertsmith.core.lazy import LazyTable
from bertsmith.network.families.family import Family, FamilyName, Preset


def _family(name: FamilyName) -> Family:
    match name:
        case "bert":
            from bertsmith.network.families.bert import BERT

            return BERT
        case "distilbert":
            from bertsmith.network.families.distilbert import DISTILBERT

            return DISTILBERT
        case "roberta":
            from bertsmith.network.families.roberta import ROBERTA

            return ROBERTA
        case "albert":
            from bertsmith.network.families.albert import ALBERT

            return ALBERT
        case "modernbert":
            from bertsmith.network.families.modernbert import MODERNBERT

            return MODERNBERT
        case "electra":
            from bertsmith.network.families.electra import ELECTRA

            return ELECTRA
        case "xlm-roberta":
            from bertsmith.network.families.roberta import XLM_ROBERTA

            return XLM_ROBERTA


FAMILIES: Mapping[FamilyName, Family] = LazyTable(
    ("bert", "distilbert", "roberta", "albert", "modernbert", "electra", "xlm-roberta"), _family
)
"""Families by name."""


@cache
def presets() -> Mapping[str, tuple[FamilyName, Preset]]:
    """Return the published models by name, with their families."""
    return {
        name: (family, preset)
        for family, record in FAMILIES.items()
        for name, preset in record.presets.items()
    }
