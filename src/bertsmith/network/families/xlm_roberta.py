"""XLM-RoBERTa (Conneau et al. 2020): a RoBERTa of a hundred languages and a larger vocabulary."""

from __future__ import annotations

from dataclasses import replace

from bertsmith.network.families.family import Preset
from bertsmith.network.families.roberta import ROBERTA

XLM_ROBERTA = replace(
    ROBERTA,
    title="XLM-RoBERTa",
    # the paper says 270 and 550; what is published comes to 278 and 560
    presets={
        "xlm-roberta-base": Preset("base", 250_002, "270-278"),
        "xlm-roberta-large": Preset("large", 250_002, "550-560"),
    },
)
