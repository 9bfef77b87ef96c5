"""DistilBERT (Sanh et al. 2019): a BERT without segments and without a pooler."""

from __future__ import annotations

from bertsmith.network.families.bert import SMALL
from bertsmith.network.families.family import Family, Preset, usual

DISTILBERT = Family(
    title="DistilBERT",
    pooler="sequences",
    wiring={"segments": 0, "pooling": "relu"},
    sizes={
        "tiny": SMALL["tiny"],
        "mini": SMALL["mini"],
        "small": SMALL["small"],
        "base": usual(6, 768),
    },
    presets={"distilbert-base": Preset("base", 30_522, "66")},
)
