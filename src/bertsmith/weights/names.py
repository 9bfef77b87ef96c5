"""The names of tensors, ours and those of `transformers`: a table a family, read both ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from bertsmith.models.catalog import Family, family
from bertsmith.models.model import ModelConfig

Part = Literal["encoder", "pooler", "masked_lm", "next_sentence", "classify"]


class Row(NamedTuple):
    """One tensor: the part it belongs to, its two names, and its shape by the names of its axes."""

    part: Part
    ours: str
    hub: str
    shape: tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a family's tensors are named in a file."""

    table: tuple[Row, ...]
    """All there are, one row for all layers."""
    tied: dict[str, str]
    """Copies that some tools write beside the tensor they are tied to."""


_Names = tuple[tuple[str, str, tuple[str | int, ...]], ...]
_V, _H, _F, _E = "vocabulary", "hidden", "feed_forward", "width"

POSITIONS = "encoder.embeddings.positions.weight"
SEGMENTS = "encoder.embeddings.segments.weight"

_EMBEDDINGS: _Names = (
    ("tokens.weight", "word_embeddings.weight", (_V, _E)),
    ("positions.weight", "position_embeddings.weight", ("longest", _E)),
    ("segments.weight", "token_type_embeddings.weight", ("segments", _E)),
    ("norm.weight", "LayerNorm.weight", (_E,)),
    ("norm.bias", "LayerNorm.bias", (_E,)),
)
_CLASSIFY: _Names = (
    ("weight", "weight", ("labels", _H)),
    ("bias", "bias", ("labels",)),
)
_BERT_LAYER: _Names = (
    ("attention.query.weight", "attention.self.query.weight", (_H, _H)),
    ("attention.query.bias", "attention.self.query.bias", (_H,)),
    ("attention.key.weight", "attention.self.key.weight", (_H, _H)),
    ("attention.key.bias", "attention.self.key.bias", (_H,)),
    ("attention.value.weight", "attention.self.value.weight", (_H, _H)),
    ("attention.value.bias", "attention.self.value.bias", (_H,)),
    ("attention.output.weight", "attention.output.dense.weight", (_H, _H)),
    ("attention.output.bias", "attention.output.dense.bias", (_H,)),
    ("attention_norm.weight", "attention.output.LayerNorm.weight", (_H,)),
    ("attention_norm.bias", "attention.output.LayerNorm.bias", (_H,)),
    ("feed_forward.up.weight", "intermediate.dense.weight", (_F, _H)),
    ("feed_forward.up.bias", "intermediate.dense.bias", (_F,)),
    ("feed_forward.down.weight", "output.dense.weight", (_H, _F)),
    ("feed_forward.down.bias", "output.dense.bias", (_H,)),
    ("feed_forward_norm.weight", "output.LayerNorm.weight", (_H,)),
    ("feed_forward_norm.bias", "output.LayerNorm.bias", (_H,)),
)
_BERT_MASKED_LM: _Names = (
    ("dense.weight", "transform.dense.weight", (_H, _H)),
    ("dense.bias", "transform.dense.bias", (_H,)),
    ("norm.weight", "transform.LayerNorm.weight", (_H,)),
    ("norm.bias", "transform.LayerNorm.bias", (_H,)),
    ("bias", "bias", (_V,)),
)

_ALBERT_LAYER: _Names = (
    ("attention.query.weight", "attention.query.weight", (_H, _H)),
    ("attention.query.bias", "attention.query.bias", (_H,)),
    ("attention.key.weight", "attention.key.weight", (_H, _H)),
    ("attention.key.bias", "attention.key.bias", (_H,)),
    ("attention.value.weight", "attention.value.weight", (_H, _H)),
    ("attention.value.bias", "attention.value.bias", (_H,)),
    ("attention.output.weight", "attention.dense.weight", (_H, _H)),
    ("attention.output.bias", "attention.dense.bias", (_H,)),
    ("attention_norm.weight", "attention.LayerNorm.weight", (_H,)),
    ("attention_norm.bias", "attention.LayerNorm.bias", (_H,)),
    ("feed_forward.up.weight", "ffn.weight", (_F, _H)),
    ("feed_forward.up.bias", "ffn.bias", (_F,)),
    ("feed_forward.down.weight", "ffn_output.weight", (_H, _F)),
    ("feed_forward.down.bias", "ffn_output.bias", (_H,)),
    ("feed_forward_norm.weight", "full_layer_layer_norm.weight", (_H,)),
    ("feed_forward_norm.bias", "full_layer_layer_norm.bias", (_H,)),
)
_ALBERT_WIDEN: _Names = (
    ("weight", "weight", (_H, _E)),
    ("bias", "bias", (_H,)),
)
_ALBERT_MASKED_LM: _Names = (
    ("dense.weight", "dense.weight", (_E, _H)),
    ("dense.bias", "dense.bias", (_E,)),
    ("norm.weight", "LayerNorm.weight", (_E,)),
    ("norm.bias", "LayerNorm.bias", (_E,)),
    ("bias", "bias", (_V,)),
)
_POOLER: _Names = (
    ("weight", "weight", (_H, _H)),
    ("bias", "bias", (_H,)),
)
_NEXT_SENTENCE: _Names = (
    ("weight", "weight", (2, _H)),
    ("bias", "bias", (2,)),
)


def _rows(part: Part, ours: str, hub: str, table: _Names) -> list[Row]:
    """The rows of a group of tensors whose names begin alike."""
    return [Row(part, f"{ours}.{one}", f"{hub}.{other}", shape) for one, other, shape in table]


_BERT = Layout(
    table=(
        *_rows("encoder", "encoder.embeddings", "bert.embeddings", _EMBEDDINGS),
        *_rows("encoder", "encoder.blocks.{block}", "bert.encoder.layer.{block}", _BERT_LAYER),
        *_rows("pooler", "pooler.dense", "bert.pooler.dense", _POOLER),
        *_rows("masked_lm", "heads.masked_lm", "cls.predictions", _BERT_MASKED_LM),
        *_rows("next_sentence", "heads.next_sentence", "cls.seq_relationship", _NEXT_SENTENCE),
        *_rows("classify", "heads.classify", "classifier", _CLASSIFY),
    ),
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
_GROUP = "albert.encoder.albert_layer_groups.{block}.albert_layers.0"
_WIDEN = "albert.encoder.embedding_hidden_mapping_in"
_ALBERT = Layout(
    table=(
        *_rows("encoder", "encoder.embeddings", "albert.embeddings", _EMBEDDINGS),
        *_rows("encoder", "encoder.embeddings.widen", _WIDEN, _ALBERT_WIDEN),
        *_rows("encoder", "encoder.blocks.{block}", _GROUP, _ALBERT_LAYER),
        *_rows("pooler", "pooler.dense", "albert.pooler", _POOLER),
        *_rows("masked_lm", "heads.masked_lm", "predictions", _ALBERT_MASKED_LM),
        # sentence order: 0 is in order there as here
        *_rows("next_sentence", "heads.next_sentence", "sop_classifier.classifier", _NEXT_SENTENCE),
        *_rows("classify", "heads.classify", "classifier", _CLASSIFY),
    ),
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
)

LAYOUTS: dict[Family, Layout] = {"bert": _BERT, "albert": _ALBERT}

COUNTERS = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
"""Constants that old `transformers` wrote among the weights, below the family's name."""


def rows(config: ModelConfig) -> list[Row]:
    """The tensors a file holds for a model, blocks numbered, in the order of the table.

    Positions and segments always have a row: a model without them writes what stands for them.
    """
    has: dict[Part, bool] = {
        "encoder": True,
        "pooler": config.pooler,
        "masked_lm": config.masked_lm,
        "next_sentence": config.next_sentence,
        "classify": bool(config.labels),
    }
    encoder, found = config.encoder, []
    for row in LAYOUTS[family(encoder)].table:
        if has[row.part]:
            several = "{block}" in row.ours
            found += [
                row._replace(ours=row.ours.format(block=i), hub=row.hub.format(block=i))
                for i in range((encoder.groups or encoder.layers) if several else 1)
            ]
    return found


def shape(row: Row, config: ModelConfig) -> tuple[int, ...]:
    """The shape the tensor of a row has in a file."""
    encoder = config.encoder
    sizes = {
        "vocabulary": encoder.vocabulary,
        "hidden": encoder.hidden,
        "width": encoder.embedding or encoder.hidden,
        "feed_forward": encoder.feed_forward,
        "longest": encoder.longest,
        # transformers cannot do without segments: two rows of zeros stand for none
        "segments": encoder.segments or 2,
        "labels": len(config.labels),
    }
    return tuple(axis if isinstance(axis, int) else sizes[axis] for axis in row.shape)


def standard(hub: str, kind: Family = "bert") -> str:
    """A name as some tool wrote it, but with the family's prefix and today's norms."""
    if hub.partition(".")[0] in ("embeddings", "encoder", "pooler"):
        hub = f"{kind}.{hub}"
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        hub = hub.removesuffix(old) + new if hub.endswith(old) else hub
    return hub
