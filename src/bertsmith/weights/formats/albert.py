"""The folders of ALBERTs in `transformers`."""

from __future__ import annotations

from bertsmith.weights.formats.format import (
    DEFAULTS,
    EMBEDDINGS,
    HOLDS,
    KEYS,
    WIDEN,
    E,
    Format,
    H,
    absolute,
    layer,
    linear,
    masked_lm,
    named,
    own_positions,
    usual_heads,
    without,
)

_LAYER = layer(
    {
        "attention.query": "attention.query",
        "attention.key": "attention.key",
        "attention.value": "attention.value",
        "attention.output": "attention.dense",
        "attention_norm": "attention.LayerNorm",
        "feed_forward.up": "ffn",
        "feed_forward.down": "ffn_output",
        "feed_forward_norm": "full_layer_layer_norm",
    }
)
MASKED_LM = masked_lm("dense", "LayerNorm", E)
_GROUP = "albert.encoder.albert_layer_groups.{block}.albert_layers.0"
_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"


ALBERT = Format(
    classes="Albert",
    keys=KEYS
    | {
        "embedding": "embedding_size",
        "groups": "num_hidden_groups",
        "classifier_dropout": "classifier_dropout_prob",
    },
    defaults=DEFAULTS
    | {
        "activation": "gelu_new",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "classifier_dropout": 0.1,
        "embedding": 128,
        "groups": 1,
    },
    constants={"inner_group_num": 1},
    holds=without(HOLDS, "embedding", "groups"),
    needs=("embedding",),
    read=own_positions,
    write=lambda encoder, ends: (
        absolute(encoder) | {"num_hidden_groups": encoder.groups or encoder.layers}
    ),
    table=(
        *named("encoder", "encoder.embeddings", "albert.embeddings", EMBEDDINGS),
        *linear("encoder", WIDEN, _PROJECTION, H, E),
        *named("encoder", "encoder.blocks.{block}", _GROUP, _LAYER),
        *linear("pooler", "pooler.dense", "albert.pooler", H, H),
        *named("masked_lm", "heads.masked_lm", "predictions", MASKED_LM),
        # sentence order: 0 is in order there as here
        *linear("next_sentence", "heads.next_sentence", "sop_classifier.classifier", 2, H),
        *usual_heads(),
    ),
    prefix="albert.",
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
)
