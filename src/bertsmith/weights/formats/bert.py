"""The folders of BERTs in `transformers`."""

from __future__ import annotations

from bertsmith.network.config import EncoderConfig
from bertsmith.weights.formats.format import (
    DEFAULTS,
    EMBEDDINGS,
    HOLDS,
    KEYS,
    F,
    Format,
    H,
    Names,
    Settings,
    V,
    absolute,
    linear,
    named,
    own_positions,
    usual_heads,
)

BERT_LAYER: Names = (
    ("attention.query.weight", "attention.self.query.weight", (H, H)),
    ("attention.query.bias", "attention.self.query.bias", (H,)),
    ("attention.key.weight", "attention.self.key.weight", (H, H)),
    ("attention.key.bias", "attention.self.key.bias", (H,)),
    ("attention.value.weight", "attention.self.value.weight", (H, H)),
    ("attention.value.bias", "attention.self.value.bias", (H,)),
    ("attention.output.weight", "attention.output.dense.weight", (H, H)),
    ("attention.output.bias", "attention.output.dense.bias", (H,)),
    ("attention_norm.weight", "attention.output.LayerNorm.weight", (H,)),
    ("attention_norm.bias", "attention.output.LayerNorm.bias", (H,)),
    ("feed_forward.up.weight", "intermediate.dense.weight", (F, H)),
    ("feed_forward.up.bias", "intermediate.dense.bias", (F,)),
    ("feed_forward.down.weight", "output.dense.weight", (H, F)),
    ("feed_forward.down.bias", "output.dense.bias", (H,)),
    ("feed_forward_norm.weight", "output.LayerNorm.weight", (H,)),
    ("feed_forward_norm.bias", "output.LayerNorm.bias", (H,)),
)
_MASKED_LM: Names = (
    ("dense.weight", "transform.dense.weight", (H, H)),
    ("dense.bias", "transform.dense.bias", (H,)),
    ("norm.weight", "transform.LayerNorm.weight", (H,)),
    ("norm.bias", "transform.LayerNorm.bias", (H,)),
    ("bias", "bias", (V,)),
)


def _write(encoder: EncoderConfig, _: tuple[int, int]) -> Settings:
    return absolute(encoder) | ({"is_decoder": True} if encoder.causal else {})


BERT = Format(
    classes="Bert",
    keys=KEYS,
    defaults=DEFAULTS,
    holds=HOLDS | {"causal": (False, True)},
    read=own_positions,
    write=_write,
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
