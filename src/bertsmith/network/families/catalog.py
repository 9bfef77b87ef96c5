"""Published models by name: their sizes, and how many parameters they were said to have."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bertsmith.network.encoder import EncoderConfig, Family
from bertsmith.network.families.albert import albert
from bertsmith.network.families.bert import bert
from bertsmith.network.families.distilbert import distilbert
from bertsmith.network.families.modernbert import modernbert
from bertsmith.network.families.roberta import roberta
from bertsmith.network.model import ModelConfig

FAMILIES: dict[Family, Callable[..., EncoderConfig]] = {
    "bert": bert,
    "albert": albert,
    "roberta": roberta,
    "distilbert": distilbert,
    "modernbert": modernbert,
}
"""Functions of a size's name, the entries of the vocabulary and changes."""


class Preset(NamedTuple):
    """A published model."""

    family: Family
    size: str
    vocabulary: int
    published: str
    """Millions of parameters as published, a figure or a range."""
    masked_lm: bool = False
    """Whether that count has the masked-LM head in it, beside the pooler."""


PRESETS: dict[str, Preset] = {
    # Turc et al. 2019, whose counts have the head in them
    "bert-tiny": Preset("bert", "tiny", 30_522, "4.4", masked_lm=True),
    "bert-mini": Preset("bert", "mini", 30_522, "11.3", masked_lm=True),
    "bert-small": Preset("bert", "small", 30_522, "29.1", masked_lm=True),
    "bert-medium": Preset("bert", "medium", 30_522, "41.7", masked_lm=True),
    # Devlin et al. 2018 say 110 and 340, Lan et al. 2019 of the same 108 and 334
    "bert-base-uncased": Preset("bert", "base", 30_522, "108-110"),
    "bert-base-cased": Preset("bert", "base", 28_996, "108-110"),
    "bert-large-uncased": Preset("bert", "large", 30_522, "334-340"),
    "bert-large-cased": Preset("bert", "large", 28_996, "334-340"),
    "bert-xlarge": Preset("bert", "xlarge", 30_000, "1270"),
    # Jiao et al. 2019, Wang et al. 2020
    "tinybert-4-312": Preset("bert", "tinybert-4-312", 30_522, "14.5"),
    "tinybert-6-768": Preset("bert", "tinybert-6-768", 30_522, "67"),
    "minilm-6-384": Preset("bert", "minilm-6-384", 30_522, "22"),
    "minilm-12-384": Preset("bert", "minilm-12-384", 30_522, "33"),
    "distilbert-base": Preset("distilbert", "base", 30_522, "66"),
    "roberta-base": Preset("roberta", "base", 50_265, "125"),
    "roberta-large": Preset("roberta", "large", 50_265, "355"),
    "albert-base": Preset("albert", "base", 30_000, "12"),
    "albert-large": Preset("albert", "large", 30_000, "18"),
    # 60 in the last version of the paper
    "albert-xlarge": Preset("albert", "xlarge", 30_000, "59"),
    # 235 in the last version of the paper; what is published comes to 222.6, here and elsewhere
    "albert-xxlarge": Preset("albert", "xxlarge", 30_000, "233"),
    # Warner et al. 2024
    "modernbert-base": Preset("modernbert", "base", 50_368, "149"),
    "modernbert-large": Preset("modernbert", "large", 50_368, "395"),
}
"""Presets by name."""


def preset_config(preset: Preset) -> ModelConfig:
    """The parts that the published count is of: encoder and pooler, for some a head too."""
    encoder = FAMILIES[preset.family](preset.size, preset.vocabulary)
    pooler = preset.family not in ("distilbert", "modernbert")
    return ModelConfig(encoder=encoder, pooler=pooler, masked_lm=preset.masked_lm)
