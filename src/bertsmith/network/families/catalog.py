"""The table of families, and the published models by name."""

from __future__ import annotations

from bertsmith.network.families.albert import ALBERT
from bertsmith.network.families.bert import BERT
from bertsmith.network.families.distilbert import DISTILBERT
from bertsmith.network.families.electra import ELECTRA
from bertsmith.network.families.family import Family, FamilyName, Preset
from bertsmith.network.families.modernbert import MODERNBERT
from bertsmith.network.families.roberta import ROBERTA
from bertsmith.network.families.xlm_roberta import XLM_ROBERTA

FAMILIES: dict[FamilyName, Family] = {
    "bert": BERT,
    "distilbert": DISTILBERT,
    "roberta": ROBERTA,
    "albert": ALBERT,
    "modernbert": MODERNBERT,
    "electra": ELECTRA,
    "xlm-roberta": XLM_ROBERTA,
}
"""Families by name."""

PRESETS: dict[str, tuple[FamilyName, Preset]] = {
    name: (family, preset)
    for family, record in FAMILIES.items()
    for name, preset in record.presets.items()
}
"""Published models by name, with their families."""
