"""The folders of ELECTRAs in `transformers`: discriminators, generators, and classifiers."""

from __future__ import annotations

from dataclasses import replace

from bertsmith.network.config import EncoderConfig
from bertsmith.weights.formats.albert import MASKED_LM
from bertsmith.weights.formats.format import (
    HOLDS,
    WIDEN,
    E,
    H,
    Row,
    Settings,
    V,
    absolute,
    linear,
    named,
    of_encoder,
    own_positions,
    without,
)
from bertsmith.weights.formats.roberta import ROBERTA

_FOUND, _REPLACED = "discriminator_predictions", "heads.replaced_tokens"


def _read(data: Settings) -> Settings:
    # tables as wide as the encoder have no matrix above them
    narrow = data.get("embedding_size", 128) != data.get("hidden_size")
    return own_positions(data) | ({} if narrow else {"embedding": None})


def _refuses(encoder: EncoderConfig) -> str | None:
    if encoder.embedding != encoder.hidden:
        return None
    return "ElectraModel of transformers has no projection of tables as wide as the encoder"


ELECTRA = replace(
    ROBERTA,
    classes="Electra",
    parts={"ForPreTraining": ("replaced_tokens",)},
    keys={**ROBERTA.keys, "embedding": "embedding_size"},
    defaults={**ROBERTA.defaults, "embedding": 128},
    constants={"summary_activation": "gelu", "summary_type": "first", "summary_use_proj": True},
    holds=without(HOLDS, "embedding") | {"pooling": ("gelu",)},
    needs=(),
    refuses=_refuses,
    read=_read,
    write=lambda encoder, ends: (
        absolute(encoder) | {"embedding_size": encoder.embedding or encoder.hidden}
    ),
    table=(
        *of_encoder(ROBERTA, "electra."),
        *linear("encoder", WIDEN, "electra.embeddings_project", H, E),
        *named("masked_lm", "heads.masked_lm", "generator_predictions", MASKED_LM[:-1]),
        Row("masked_lm", "heads.masked_lm.bias", "generator_lm_head.bias", (V,)),
        *linear("replaced_tokens", f"{_REPLACED}.dense", f"{_FOUND}.dense", H, H),
        *linear("replaced_tokens", f"{_REPLACED}.output", f"{_FOUND}.dense_prediction", 1, H),
        *(row for row in ROBERTA.table if row.part in ("classify", "tag", "span")),
        *linear("choose", "pooler.dense", "sequence_summary.summary", H, H),
        *linear("choose", "heads.choose", "classifier", 1, H),
    ),
    prefix="electra.",
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
)
