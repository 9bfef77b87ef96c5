"""ALBERT (Lan et al. 2019, table 1): narrow tables, one block for all layers."""

from __future__ import annotations

from bertsmith.network.families.bert import SMALL
from bertsmith.network.families.family import Family, Preset, Size, usual

ALBERT = Family(
    title="ALBERT",
    pairs="sentence_order",
    # the second published version has no dropout
    dropout=0.0,
    wiring={
        "embedding": 128,
        "groups": 1,
        "activation": "gelu_tanh",
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    sizes={
        **SMALL,
        "base": usual(12, 768),
        "large": usual(24, 1024),
        "xlarge": Size(24, 2048, 16, 8192),
        "xxlarge": usual(12, 4096),
    },
    presets={
        "albert-base": Preset("base", 30_000, "12"),
        "albert-large": Preset("large", 30_000, "18"),
        # 60 in the last version of the paper
        "albert-xlarge": Preset("xlarge", 30_000, "59"),
        # 235 in the last version of the paper; what is published comes to 222.6
        "albert-xxlarge": Preset("xxlarge", 30_000, "233"),
    },
)
