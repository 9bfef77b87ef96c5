"""The formats of a model folder: those of the hub, one a family, and our own.

Wiring is free, but a class of `transformers` computes only its family's. What none of them holds is
saved in our own format: `model_type` is bertsmith, the whole config is one key of `config.json`,
and tensors have the names that they have in the model. `transformers` refuses such a folder.
"""

from __future__ import annotations

from typing import Any, Literal

from bertsmith.network.encoder import Family
from bertsmith.network.model import ModelConfig

Format = Family | Literal["bertsmith"]
"""The names of formats: families, and our own."""

PREFIXES: dict[Family, str] = {
    "bert": "Bert",
    "albert": "Albert",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "modernbert": "ModernBert",
}
"""What the names of a family's classes begin with."""

_USUAL: dict[str, tuple[Any, ...]] = {
    "embedding": (None,),
    "groups": (None,),
    "position_offset": (0,),
    "positions": ("learned", "sinusoidal", "none"),
    "window": (None,),
    "gated": (False,),
    "norm": ("after",),
    "biases": (True,),
    "pooling": ("tanh",),
    "pooled": ("first", "last"),
    "causal": (False,),
}
_WIRING: dict[Family, dict[str, tuple[Any, ...]]] = {
    "bert": _USUAL | {"causal": (False, True)},
    "albert": {n: values for n, values in _USUAL.items() if n not in ("embedding", "groups")},
    "roberta": {n: values for n, values in _USUAL.items() if n != "position_offset"},
    "distilbert": _USUAL | {"pooling": ("relu",), "segments": (0,), "norm_epsilon": (1e-12,)},
    "modernbert": {
        "embedding": (None,),
        "groups": (None,),
        "position_offset": (0,),
        "segments": (0,),
        "positions": ("rotary",),
        "gated": (True,),
        "norm": ("before",),
        "biases": (False,),
        "pooling": ("gelu",),
        "pooled": ("first", "mean"),
        "causal": (False,),
    },
}
"""The values that settings may have; of a setting that is not named, any."""


def cannot_hold(config: ModelConfig) -> str | None:
    """Return why no class of `transformers` computes what the model does; None where one does."""
    encoder = config.encoder
    kind = f"{PREFIXES[encoder.family]}Model of transformers"
    for name, values in _WIRING[encoder.family].items():
        value = getattr(encoder, name)
        if value not in values:
            return f"{kind} cannot have {name} set to {value!r}"
    if encoder.family == "albert" and encoder.embedding is None:
        return f"{kind} cannot have embedding set to None"
    if encoder.family == "roberta" and not encoder.position_offset:
        return f"{kind} cannot have position_offset set to 0"
    if encoder.family == "modernbert" and encoder.window is None:
        return f"{kind} cannot have window set to None"
    if config.pooler and encoder.pooled == "last":
        return (
            "the model reads from left to right, so its head reads the last token of a text, and "
            "transformers would read the first"
        )
    return None


def format_of(config: ModelConfig) -> Format:
    """Return the format that a model is saved in."""
    return config.encoder.family if cannot_hold(config) is None else "bertsmith"
