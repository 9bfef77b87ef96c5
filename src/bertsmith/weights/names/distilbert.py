"""The names of DistilBERT's tensors in `transformers`."""

from __future__ import annotations

from bertsmith.weights.names.layout import (
    EMBEDDINGS,
    SEGMENTS,
    F,
    H,
    Layout,
    Names,
    Row,
    V,
    linear,
    named,
)

_LAYER: Names = (
    ("attention.query.weight", "attention.q_lin.weight", (H, H)),
    ("attention.query.bias", "attention.q_lin.bias", (H,)),
    ("attention.key.weight", "attention.k_lin.weight", (H, H)),
    ("attention.key.bias", "attention.k_lin.bias", (H,)),
    ("attention.value.weight", "attention.v_lin.weight", (H, H)),
    ("attention.value.bias", "attention.v_lin.bias", (H,)),
    ("attention.output.weight", "attention.out_lin.weight", (H, H)),
    ("attention.output.bias", "attention.out_lin.bias", (H,)),
    ("attention_norm.weight", "sa_layer_norm.weight", (H,)),
    ("attention_norm.bias", "sa_layer_norm.bias", (H,)),
    ("feed_forward.up.weight", "ffn.lin1.weight", (F, H)),
    ("feed_forward.up.bias", "ffn.lin1.bias", (F,)),
    ("feed_forward.down.weight", "ffn.lin2.weight", (H, F)),
    ("feed_forward.down.bias", "ffn.lin2.bias", (H,)),
    ("feed_forward_norm.weight", "output_layer_norm.weight", (H,)),
    ("feed_forward_norm.bias", "output_layer_norm.bias", (H,)),
)
_MASKED_LM: Names = (
    ("heads.masked_lm.dense.weight", "vocab_transform.weight", (H, H)),
    ("heads.masked_lm.dense.bias", "vocab_transform.bias", (H,)),
    ("heads.masked_lm.norm.weight", "vocab_layer_norm.weight", (H,)),
    ("heads.masked_lm.norm.bias", "vocab_layer_norm.bias", (H,)),
    ("heads.masked_lm.bias", "vocab_projector.bias", (V,)),
)
_BLOCKS = "distilbert.transformer.layer.{block}"

DISTILBERT = Layout(
    table=(
        *(
            row
            for row in named("encoder", "encoder.embeddings", "distilbert.embeddings", EMBEDDINGS)
            if row.ours != SEGMENTS
        ),
        *named("encoder", "encoder.blocks.{block}", _BLOCKS, _LAYER),
        *(Row("masked_lm", *each) for each in _MASKED_LM),
        *linear("classify", "pooler.dense", "pre_classifier", H, H),
        *linear("classify", "heads.classify", "classifier", "labels", H),
        *linear("choose", "pooler.dense", "pre_classifier", H, H),
        *linear("choose", "heads.choose", "classifier", 1, H),
        *linear("tag", "heads.tag", "classifier", "labels", H),
        *linear("span", "heads.span", "qa_outputs", 2, H),
    ),
    prefix="distilbert.",
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
)
