"""ELECTRA (Clark et al. 2020, tables 6 and 7): detects tokens that a small generator replaced."""

from __future__ import annotations

from bertsmith.network.families.family import Family, Preset, Size, usual

ELECTRA = Family(
    title="ELECTRA",
    pooler="sequences",
    pooler_dropout=True,
    exact_heads=True,
    replaced_tokens=True,
    wiring={"pooling": "gelu"},
    # those below small are ours
    sizes={
        "tiny": Size(2, 128, 2, 512, embedding=64),
        "mini": Size(4, 256, 4, 1024, embedding=128),
        "small": Size(12, 256, 4, 1024, embedding=128),
        "base": usual(12, 768),
        "large": usual(24, 1024),
    },
    presets={
        # 14 in the paper; what is published comes to 13.5
        "electra-small": Preset("small", 30_522, "13.5-14"),
        "electra-base": Preset("base", 30_522, "110"),
        "electra-large": Preset("large", 30_522, "335"),
    },
)
