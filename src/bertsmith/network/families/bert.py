"""BERT (Devlin et al. 2018; the small ones Turc et al. 2019)."""

from __future__ import annotations

from bertsmith.network.families.family import Family, Preset, Size, usual

BERT = Family(
    title="BERT",
    pairs="next_sentence",
    sizes={
        "tiny": usual(2, 128),
        "mini": usual(4, 256),
        "small": usual(4, 512),
        "medium": usual(8, 512),
        "base": usual(12, 768),
        "large": usual(24, 1024),
        # no weights were published of it (Lan et al. 2019, table 1)
        "xlarge": Size(24, 2048, 16, 8192),
        # BERTs that were taught by larger ones: Jiao et al. 2019, Wang et al. 2020
        "tinybert-4-312": Size(4, 312, 12, 1200),
        "tinybert-6-768": usual(6, 768),
        "minilm-6-384": Size(6, 384, 12, 1536),
        "minilm-12-384": Size(12, 384, 12, 1536),
    },
    presets={
        # Turc et al. 2019, whose counts have the head in them
        "bert-tiny": Preset("tiny", 30_522, "4.4", masked_lm=True),
        "bert-mini": Preset("mini", 30_522, "11.3", masked_lm=True),
        "bert-small": Preset("small", 30_522, "29.1", masked_lm=True),
        "bert-medium": Preset("medium", 30_522, "41.7", masked_lm=True),
        # Devlin et al. 2018 say 110 and 340, Lan et al. 2019 of the same 108 and 334
        "bert-base-uncased": Preset("base", 30_522, "108-110"),
        "bert-base-cased": Preset("base", 28_996, "108-110"),
        "bert-large-uncased": Preset("large", 30_522, "334-340"),
        "bert-large-cased": Preset("large", 28_996, "334-340"),
        "bert-xlarge": Preset("xlarge", 30_000, "1270"),
        # Jiao et al. 2019, Wang et al. 2020
        "tinybert-4-312": Preset("tinybert-4-312", 30_522, "14.5"),
        "tinybert-6-768": Preset("tinybert-6-768", 30_522, "67"),
        "minilm-6-384": Preset("minilm-6-384", 30_522, "22"),
        "minilm-12-384": Preset("minilm-12-384", 30_522, "33"),
    },
)

SMALL = {name: BERT.sizes[name] for name in ("tiny", "mini", "small", "medium")}
"""Small sizes to try other families in; they were not published as such."""
