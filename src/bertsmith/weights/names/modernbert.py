"""The names of ModernBERT's tensors in `transformers`."""

from __future__ import annotations

from bertsmith.weights.names.layout import F, H, Layout, Part, Row, V, linear

_BLOCK, _LAYER = "encoder.blocks.{block}", "model.layers.{block}"
_NARROW = (
    # queries, keys and values are one tensor in the file, and so are both inner values
    *(
        Row(
            "encoder",
            f"{_BLOCK}.attention.{each}.weight",
            f"{_LAYER}.attn.Wqkv.weight",
            (H, H),
            (i, 3),
        )
        for i, each in enumerate(("query", "key", "value"))
    ),
    *(
        Row(
            "encoder",
            f"{_BLOCK}.feed_forward.{each}.weight",
            f"{_LAYER}.mlp.Wi.weight",
            (F, H),
            (i, 2),
        )
        for i, each in enumerate(("up", "gate"))
    ),
)


def _head(part: Part, ours: str) -> list[Row]:
    """The layer below a head, which is named alike below every one."""
    return [
        Row(part, f"{ours}.dense.weight", "head.dense.weight", (H, H)),
        Row(part, f"{ours}.norm.weight", "head.norm.weight", (H,)),
    ]


MODERNBERT = Layout(
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
