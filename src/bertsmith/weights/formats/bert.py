"""The folders of BERTs in `transformers`."""

from __future__ import annotations

from bertsmith.weights.formats.format import (
    DEFAULTS,
    EMBEDDINGS,
    HOLDS,
    KEYS,
    Format,
    H,
    absolute,
    layer,
    linear,
    masked_lm,
    named,
    own_positions,
    usual_heads,
)

BERT_LAYER = layer(
    {
        "attention.query": "attention.self.query",
        "attention.key": "attention.self.key",
        "attention.value": "attention.self.value",
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "feed_forward.up": "intermediate.dense",
        "feed_forward.down": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    }
)
_MASKED_LM = masked_lm("transform.dense", "transform.LayerNorm")


BERT = Format(
    classes="Bert",
    keys=KEYS,
    defaults=DEFAULTS,
    holds=HOLDS | {"causal": (False, True)},
    read=own_positions,
    write=lambda encoder, ends: (
        absolute(encoder) | ({"is_decoder": True} if encoder.causal else {})
    ),
    table=(
        *named("encoder", "encoder.embeddings", "bert.embeddings", EMBEDDINGS),
        *named("encoder", "encoder.blocks.{block}", "bert.encoder.layer.{block}", BERT_LAYER),
        *linear("pooler", "pooler.dense", "bert.pooler.dense", H, H),
        *named("masked_lm", "heads.masked_lm", "cls.predictions", _MASKED_LM),
        *linear("next_sentence", "heads.next_sentence", "cls.seq_relationship", 2, H),
        *usual_heads(),
    ),
    prefix="bert.",
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
