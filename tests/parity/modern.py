"""The ModernBERTs of transformers, without the warnings of the compiler that they bring in."""

from __future__ import annotations

import warnings
from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """A class of transformers; imported when it is used, as that takes seconds."""
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, name)


def there(**changes: Any) -> Any:  # noqa: ANN401
    """The config of a small one, whose sequences exceed its window of 16; fourth layer global."""
    settings = {
        "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4,
        "intermediate_size": 37, "max_position_embeddings": 2500, "local_attention": 16,
        "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2,
        "eos_token_id": 3, "attn_implementation": "sdpa", "reference_compile": False,
    }  # fmt: skip
    return __getattr__("ModernBertConfig")(**settings | changes)
