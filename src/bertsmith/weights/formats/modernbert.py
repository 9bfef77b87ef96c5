"""The folders of ModernBERTs in `transformers`, whose version 5 has other keys than 4."""

from __future__ import annotations

from collections.abc import Sequence

from bertsmith.core.errors import ConfigError
from bertsmith.network.config import EncoderConfig
from bertsmith.weights.formats.format import (
    HOLDS,
    KEYS,
    F,
    Format,
    H,
    Part,
    Row,
    Settings,
    V,
    linear,
    without,
)

_BLOCK, _LAYER = "encoder.blocks.{block}", "model.layers.{block}"
_NARROW = (
    # queries, keys and values are one tensor in the file, and so are both inner values
    *(
        Row(
            "encoder",
            f"{_BLOCK}.attention.{item}.weight",
            f"{_LAYER}.attn.Wqkv.weight",
            (H, H),
            (i, 3),
        )
        for i, item in enumerate(("query", "key", "value"))
    ),
    *(
        Row(
            "encoder",
            f"{_BLOCK}.feed_forward.{item}.weight",
            f"{_LAYER}.mlp.Wi.weight",
            (F, H),
            (i, 2),
        )
        for i, item in enumerate(("up", "gate"))
    ),
)


def _head(part: Part, ours: str) -> list[Row]:
    """Return the layer below a head, which is named alike below every one."""
    return [
        Row(part, f"{ours}.dense.weight", "head.dense.weight", (H, H)),
        Row(part, f"{ours}.norm.weight", "head.norm.weight", (H,)),
    ]


_ROTATION, _KINDS, _EVERY = "rope_parameters", "layer_types", "global_attn_every_n_layers"
# no class reads it: all positions are rotary, where ModernBERT-base says absolute, Ettin sans_pos
_UNREAD = "position_embedding_type"
_WINDOW, _HALF = "local_attention", "sliding_window"
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_BASES = {_GLOBAL: "global_rope_theta", _LOCAL: "local_rope_theta"}


def _upgrade(data: Settings) -> Settings:
    """Return the settings with the keys of version 4 in place of those of 5.

    Raises `ConfigError` for a rotation or an order of layers that is not computed here, and where
    both versions' keys are there and do not agree.
    """
    dropped = (_ROTATION, _KINDS, _UNREAD)
    results = {key: value for key, value in data.items() if key not in dropped}
    for kind, base in _bases(data.get(_ROTATION)).items():
        key = _BASES[kind]
        if data.get(key, base) not in (None, base):
            raise ConfigError(
                f"{key} is {data[key]!r}, but {_ROTATION} has {base!r} for {kind}",
                remedy="both must be the same: remove the wrong one",
            )
        results[key] = base
    kinds = data.get(_KINDS)
    if kinds is not None:
        results[_EVERY] = _every(kinds, data)
    half, window = data.get(_HALF), data.get(_WINDOW, 128)
    if half is not None and not (type(window) is int and half == window // 2):
        # version 4 computes the one, and 5 the other
        raise ConfigError(
            f"{_HALF} is {half!r}, but {_WINDOW} is {window!r}",
            remedy="the one must be half of the other: correct the wrong one",
        )
    if results.get(_BASES[_LOCAL], 0) is None:
        results[_BASES[_LOCAL]] = results.get(_BASES[_GLOBAL], 160_000.0)
    return results


def _bases(table: object) -> dict[str, object]:
    """Return the base of the rotation for the kinds of layers that have one of their own."""
    if table is None:
        return {}
    if not isinstance(table, dict) or set(table) - set(_BASES):
        raise ConfigError(
            f"{_ROTATION} is {str(table)[:80]!r}",
            remedy=f"it must be a table with {_GLOBAL} and {_LOCAL}",
        )
    results: dict[str, object] = {}
    for kind, settings in table.items():
        if settings is None:
            continue
        if not isinstance(settings, dict):
            raise ConfigError(
                f"{_ROTATION} of {kind} is {str(settings)[:80]!r}", remedy="it must be a table"
            )
        for key, value in settings.items():
            if key == "rope_theta":
                results[kind] = value
            elif key not in ("rope_type", "type") or value != "default":
                raise ConfigError(
                    f"{_ROTATION} of {kind} has {str(key)[:30]} {str(value)[:50]!r}, "
                    "which changes the result",
                    remedy="only rope_theta with the rope_type 'default' is supported",
                )
    return results


def _every(kinds: object, data: Settings) -> int:
    """Return n where every n-th layer is global, the first among them."""
    layers = data.get("num_hidden_layers")
    known = isinstance(kinds, list) and all(kind in (_GLOBAL, _LOCAL) for kind in kinds)
    if not isinstance(kinds, list) or not known or len(kinds) != layers:
        raise ConfigError(
            f"{_KINDS} is {str(kinds)[:80]}",
            remedy=f"it must have {_GLOBAL!r} or {_LOCAL!r} for each of the {layers} layers",
        )
    stated = data.get(_EVERY)
    if type(stated) is int and stated > 0 and kinds == _pattern(stated, len(kinds)):
        return stated
    every = next((n for n, kind in enumerate(kinds) if n and kind == _GLOBAL), len(kinds))
    if kinds != _pattern(every, len(kinds)):
        raise ConfigError(
            f"{_KINDS} has no {_GLOBAL} in every n-th layer, the first among them",
            remedy="another order of layers cannot be followed",
        )
    if stated is not None:
        # version 4 computes what it says, and 5 the list
        raise ConfigError(
            f"{_EVERY} is {stated!r}, but {_KINDS} has those of {every}",
            remedy="both must say the same: remove the wrong one",
        )
    return every


def _pattern(every: int, layers: int) -> Sequence[str]:
    return [_LOCAL if layer % every else _GLOBAL for layer in range(layers)]


def _read(data: Settings) -> Settings:
    """Return which token heads read; raise `ConfigError` for what differs below them."""
    pooled = {"cls": "first", "mean": "mean"}.get(str(data.get("classifier_pooling", "cls")))
    if pooled is None:
        raise ConfigError(
            f"classifier_pooling is {data['classifier_pooling']!r}", remedy="it can be cls or mean"
        )
    activation, dropout = data.get("hidden_activation", "gelu"), data.get("mlp_dropout", 0.0)
    for key, stated, same in (
        # heads have the exact GELU in transformers where nothing is stated, whatever layers have
        ("classifier_activation", data.get("classifier_activation", "gelu"), activation),
        ("embedding_dropout", data.get("embedding_dropout", dropout), dropout),
    ):
        if stated != same:
            raise ConfigError(
                f"{key} is {stated!r}{'' if key in data else ' where it is left out'}",
                remedy=f"only {same!r}, as elsewhere, is supported",
            )
    return {"pooled": pooled}


def _write(encoder: EncoderConfig, ends: tuple[int, int]) -> Settings:
    """Return the wiring, and ids that would default to the published ones."""
    first, last = ends
    return {
        "bos_token_id": first,
        "classifier_activation": "gelu_new" if encoder.activation == "gelu_tanh" else "gelu",
        "classifier_pooling": "mean" if encoder.pooled == "mean" else "cls",
        "cls_token_id": first,
        "embedding_dropout": encoder.dropout,
        "eos_token_id": last,
        "sep_token_id": last,
    }


MODERNBERT = Format(
    classes="ModernBert",
    keys={
        **without(KEYS, "segments"),
        "theta": "global_rope_theta",
        "local_theta": "local_rope_theta",
        "window": "local_attention",
        "global_every": "global_attn_every_n_layers",
        "activation": "hidden_activation",
        "dropout": "mlp_dropout",
        "attention_dropout": "attention_dropout",
        "norm_epsilon": "norm_eps",
    },
    defaults={
        "theta": 160_000.0,
        "local_theta": 10_000.0,
        "window": 128,
        "global_every": 3,
        "activation": "gelu",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "classifier_dropout": 0.0,
        "norm_epsilon": 1e-5,
        "initial_std": 0.02,
    },
    constants={
        "attention_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "mlp_bias": False,
        "norm_bias": False,
    },
    holds=without(HOLDS, "window")
    | {
        "segments": (0,),
        "positions": ("rotary",),
        "gated": (True,),
        "norm": ("before",),
        "biases": (False,),
        "pooling": ("gelu",),
        "pooled": ("first", "mean"),
    },
    needs=("window",),
    read=_read,
    write=_write,
    upgrade=_upgrade,
    table=(
        Row(
            "encoder",
            "encoder.embeddings.tokens.weight",
            "model.embeddings.tok_embeddings.weight",
            (V, H),
        ),
        Row("encoder", "encoder.embeddings.norm.weight", "model.embeddings.norm.weight", (H,)),
        Row(
            "encoder",
            f"{_BLOCK}.attention_norm.weight",
            f"{_LAYER}.attn_norm.weight",
            (H,),
            first=1,
        ),
        *_NARROW,
        Row("encoder", f"{_BLOCK}.attention.output.weight", f"{_LAYER}.attn.Wo.weight", (H, H)),
        Row("encoder", f"{_BLOCK}.feed_forward_norm.weight", f"{_LAYER}.mlp_norm.weight", (H,)),
        Row("encoder", f"{_BLOCK}.feed_forward.down.weight", f"{_LAYER}.mlp.Wo.weight", (H, F)),
        Row("encoder", "encoder.final_norm.weight", "model.final_norm.weight", (H,)),
        *_head("masked_lm", "heads.masked_lm"),
        Row("masked_lm", "heads.masked_lm.bias", "decoder.bias", (V,)),
        *_head("classify", "pooler"),
        *linear("classify", "heads.classify", "classifier", "labels", H),
        *_head("tag", "pooler"),
        *linear("tag", "heads.tag", "classifier", "labels", H),
        *_head("span", "pooler"),
        *linear("span", "heads.span", "classifier", 2, H),
        *_head("choose", "pooler"),
        *linear("choose", "heads.choose", "classifier", 1, H),
    ),
    prefix="model.",
    one_head=True,
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
)
