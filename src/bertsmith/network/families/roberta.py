"""RoBERTa's published sizes (Liu et al. 2019), and small ones to try things on."""

from __future__ import annotations

from typing import Any

from bertsmith.network.encoder import EncoderConfig
from bertsmith.network.families.bert import SIZES as BERT_SIZES
from bertsmith.network.families.bert import sized

SIZES = {name: BERT_SIZES[name] for name in ("tiny", "mini", "small", "medium", "base", "large")}
"""Layers and hidden size by name; those below base are BERT's, not published as RoBERTas."""


def roberta(size: str, vocabulary: int, **changes: Any) -> EncoderConfig:  # noqa: ANN401
    """The encoder of a published size, with some settings changed; `ConfigError` if unknown.

    A BERT without segments to tell apart, whose positions begin at row 2: `transformers` counts
    them from one more than the padding id, which is 1 in the published vocabulary.
    """
    wiring: dict[str, Any] = {"segments": 1, "position_offset": 2, "norm_epsilon": 1e-5}
    return sized("RoBERTa", SIZES, size, {"vocabulary": vocabulary} | wiring | changes)
