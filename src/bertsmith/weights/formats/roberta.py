"""The folders of RoBERTas in `transformers`, and of XLM-RoBERTas, which other classes read."""

from __future__ import annotations

from dataclasses import replace

from bertsmith.weights.formats.bert import BERT_LAYER
from bertsmith.weights.formats.format import (
    DEFAULTS,
    EMBEDDINGS,
    HOLDS,
    KEYS,
    Format,
    H,
    absolute,
    linear,
    masked_lm,
    named,
    own_positions,
    without,
)

_MASKED_LM = masked_lm("dense", "layer_norm")

ROBERTA = Format(
    classes="Roberta",
    keys=KEYS,
    defaults=DEFAULTS,
    holds=without(HOLDS, "position_offset"),
    needs=("position_offset",),
    read=own_positions,
    write=absolute,
    table=(
        *named("encoder", "encoder.embeddings", "roberta.embeddings", EMBEDDINGS),
        *named("encoder", "encoder.blocks.{block}", "roberta.encoder.layer.{block}", BERT_LAYER),
        *linear("pooler", "pooler.dense", "roberta.pooler.dense", H, H),
        *named("masked_lm", "heads.masked_lm", "lm_head", _MASKED_LM),
        # a classifier ignores the pooler and has its own layer like it
        *linear("classify", "pooler.dense", "classifier.dense", H, H),
        *linear("classify", "heads.classify", "classifier.out_proj", "labels", H),
        *linear("tag", "heads.tag", "classifier", "labels", H),
        *linear("span", "heads.span", "qa_outputs", 2, H),
        *linear("choose", "heads.choose", "classifier", 1, H),
    ),
    prefix="roberta.",
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
)


XLM_ROBERTA = replace(ROBERTA, classes="XLMRoberta")
