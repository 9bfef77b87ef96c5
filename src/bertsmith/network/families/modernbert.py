"""ModernBERT (Warner et al. 2024, table 4): rotary positions, norms before, no biases, long texts.

One layer in three sees all, the others 64 tokens on either side.
"""

from __future__ import annotations

from bertsmith.network.families.family import Family, Preset, Size

MODERNBERT = Family(
    title="ModernBERT",
    pooler="heads",
    wiring={
        "longest": 8192,
        "segments": 0,
        "positions": "rotary",
        "theta": 160_000.0,
        "local_theta": 10_000.0,
        "window": 128,
        "global_every": 3,
        "gated": True,
        "norm": "before",
        "biases": False,
        "pooling": "gelu",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "norm_epsilon": 1e-5,
    },
    # those below base are ours
    sizes={
        "tiny": Size(3, 128, 2, 192),
        "mini": Size(6, 256, 4, 384),
        "small": Size(6, 512, 8, 768),
        "medium": Size(12, 512, 8, 768),
        "base": Size(22, 768, 12, 1152),
        "large": Size(28, 1024, 16, 2624),
    },
    presets={
        "modernbert-base": Preset("base", 50_368, "149"),
        "modernbert-large": Preset("large", 50_368, "395"),
    },
)
