"""The folders of DistilBERTs in `transformers`."""

from __future__ import annotations

from bertsmith.core.errors import ConfigError
from bertsmith.network.config import EncoderConfig
from bertsmith.weights.formats.format import (
    DEFAULTS,
    EMBEDDINGS,
    HOLDS,
    SEGMENTS,
    Format,
    H,
    Names,
    Row,
    Settings,
    V,
    layer,
    linear,
    named,
    own_positions,
)

_LAYER = layer(
    {
        "attention.query": "attention.q_lin",
        "attention.key": "attention.k_lin",
        "attention.value": "attention.v_lin",
        "attention.output": "attention.out_lin",
        "attention_norm": "sa_layer_norm",
        "feed_forward.up": "ffn.lin1",
        "feed_forward.down": "ffn.lin2",
        "feed_forward_norm": "output_layer_norm",
    }
)
_MASKED_LM: Names = (
    ("heads.masked_lm.dense.weight", "vocab_transform.weight", (H, H)),
    ("heads.masked_lm.dense.bias", "vocab_transform.bias", (H,)),
    ("heads.masked_lm.norm.weight", "vocab_layer_norm.weight", (H,)),
    ("heads.masked_lm.norm.bias", "vocab_layer_norm.bias", (H,)),
    ("heads.masked_lm.bias", "vocab_projector.bias", (V,)),
)
_BLOCKS = "distilbert.transformer.layer.{block}"


_BERTS = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
"""The names of a BERT for sizes, which `transformers` takes here too, before the family's own."""


def _upgrade(data: Settings) -> Settings:
    """Return the settings with sizes under the family's own names.

    Raises `ConfigError` where both names of one are there and do not agree.
    """
    results = {key: value for key, value in data.items() if key not in _BERTS}
    for key, own in _BERTS.items():
        if key not in data:
            continue
        if data.get(own, data[key]) != data[key]:
            raise ConfigError(
                f"{own} is {data[own]!r}, but {key} is {data[key]!r}",
                remedy="both must be the same: remove the wrong one",
            )
        results[own] = data[key]
    return results


def _read(data: Settings) -> Settings:
    fixed = data.get("sinusoidal_pos_embds") is True
    return own_positions(data, "sinusoidal" if fixed else "learned")


def _write(encoder: EncoderConfig, _: tuple[int, int]) -> Settings:
    own_settings = (
        {} if encoder.positions == "learned" else {"bertsmith_positions": encoder.positions}
    )
    return {"sinusoidal_pos_embds": encoder.positions == "sinusoidal"} | own_settings


DISTILBERT = Format(
    classes="DistilBert",
    keys={
        "vocabulary": "vocab_size",
        "hidden": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "feed_forward": "hidden_dim",
        "longest": "max_position_embeddings",
        "activation": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
        "initial_std": "initializer_range",
    },
    defaults=DEFAULTS | {"classifier_dropout": 0.2},
    holds=HOLDS | {"pooling": ("relu",), "segments": (0,), "norm_epsilon": (1e-12,)},
    read=_read,
    write=_write,
    upgrade=_upgrade,
    table=(
        *(
            row
            for row in named("encoder", "encoder.embeddings", "distilbert.embeddings", EMBEDDINGS)
            if row.ours != SEGMENTS
        ),
        *named("encoder", "encoder.blocks.{block}", _BLOCKS, _LAYER),
        *(Row("masked_lm", *item) for item in _MASKED_LM),
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
