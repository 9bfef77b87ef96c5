"""RoBERTa (Liu et al. 2019): a BERT whose texts have one segment.

Its positions begin at row 2: `transformers` counts them from one more than the padding id, which is
1 in the published vocabulary.
"""

from __future__ import annotations

from bertsmith.network.families.bert import SMALL
from bertsmith.network.families.family import Family, Preset, usual

ROBERTA = Family(
    title="RoBERTa",
    pooler_dropout=True,
    exact_heads=True,
    wiring={"segments": 1, "position_offset": 2, "norm_epsilon": 1e-5},
    sizes={**SMALL, "base": usual(12, 768), "large": usual(24, 1024)},
    presets={
        "roberta-base": Preset("base", 50_265, "125"),
        "roberta-large": Preset("large", 50_265, "355"),
    },
)
