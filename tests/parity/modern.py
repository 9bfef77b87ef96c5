"""The ModernBERTs of transformers, without the warnings of the compiler that they bring in."""

from __future__ import annotations

import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import (
        ModernBertConfig,
        ModernBertForMaskedLM,
        ModernBertForMultipleChoice,
        ModernBertForQuestionAnswering,
        ModernBertForSequenceClassification,
        ModernBertForTokenClassification,
        ModernBertModel,
    )

__all__ = [
    "ModernBertConfig",
    "ModernBertForMaskedLM",
    "ModernBertForMultipleChoice",
    "ModernBertForQuestionAnswering",
    "ModernBertForSequenceClassification",
    "ModernBertForTokenClassification",
    "ModernBertModel",
]


def there(**changes: Any) -> ModernBertConfig:  # noqa: ANN401
    """A small one, whose sequences are longer than the window of 16; fourth layer global."""
    settings = {
        "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4,
        "intermediate_size": 37, "max_position_embeddings": 2500, "local_attention": 16,
        "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2,
        "eos_token_id": 3, "attn_implementation": "sdpa", "reference_compile": False,
    }  # fmt: skip
    return ModernBertConfig(**settings | changes)
