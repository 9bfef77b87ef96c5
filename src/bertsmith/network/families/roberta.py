"""RoBERTa (Liu et al. 2019): a BERT whose texts have one segment; and XLM-RoBERTa.

Positions begin at row 2: `transformers` counts them from one more than the padding id, which is 1
in the published vocabularies. XLM-RoBERTa (Conneau et al. 2020) is a RoBERTa of a hundred languages
and a larger vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

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

XLM_ROBERTA = replace(
    ROBERTA,
    title="XLM-RoBERTa",
    # the paper says 270 and 550; what is published comes to 278 and 560
    presets={
        "xlm-roberta-base": Preset("base", 250_002, "270-278"),
        "xlm-roberta-large": Preset("large", 250_002, "550-560"),
    },
)
