"""The names of BERT's tensors, ours and those of `transformers`, as one table read both ways."""

from __future__ import annotations

from typing import Literal, NamedTuple

from bertsmith.models.model import ModelConfig

Part = Literal["encoder", "pooler", "masked_lm", "next_sentence", "classify"]


class Row(NamedTuple):
    """One tensor: the part it belongs to, its two names, and its shape by the names of its axes."""

    part: Part
    ours: str
    hub: str
    shape: tuple[str | int, ...]


_Names = tuple[tuple[str, str, tuple[str | int, ...]], ...]
_V, _H, _F = "vocabulary", "hidden", "feed_forward"

POSITIONS = "encoder.embeddings.positions.weight"
SEGMENTS = "encoder.embeddings.segments.weight"

_EMBEDDINGS: _Names = (
    ("tokens.weight", "word_embeddings.weight", (_V, _H)),
    ("positions.weight", "position_embeddings.weight", ("longest", _H)),
    ("segments.weight", "token_type_embeddings.weight", ("segments", _H)),
    ("norm.weight", "LayerNorm.weight", (_H,)),
    ("norm.bias", "LayerNorm.bias", (_H,)),
)
_LAYER: _Names = (
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
_MASKED_LM: _Names = (
    ("dense.weight", "transform.dense.weight", (_H, _H)),
    ("dense.bias", "transform.dense.bias", (_H,)),
    ("norm.weight", "transform.LayerNorm.weight", (_H,)),
    ("norm.bias", "transform.LayerNorm.bias", (_H,)),
    ("bias", "bias", (_V,)),
)

TABLE: tuple[Row, ...] = (
    *(
        Row("encoder", f"encoder.embeddings.{ours}", f"bert.embeddings.{hub}", shape)
        for ours, hub, shape in _EMBEDDINGS
    ),
    *(
        Row("encoder", "encoder.blocks.{layer}." + ours, "bert.encoder.layer.{layer}." + hub, shape)
        for ours, hub, shape in _LAYER
    ),
    Row("pooler", "pooler.dense.weight", "bert.pooler.dense.weight", (_H, _H)),
    Row("pooler", "pooler.dense.bias", "bert.pooler.dense.bias", (_H,)),
    *(
        Row("masked_lm", f"heads.masked_lm.{ours}", f"cls.predictions.{hub}", shape)
        for ours, hub, shape in _MASKED_LM
    ),
    Row("next_sentence", "heads.next_sentence.weight", "cls.seq_relationship.weight", (2, _H)),
    Row("next_sentence", "heads.next_sentence.bias", "cls.seq_relationship.bias", (2,)),
    Row("classify", "heads.classify.weight", "classifier.weight", ("labels", _H)),
    Row("classify", "heads.classify.bias", "classifier.bias", ("labels",)),
)

TIED: dict[str, str] = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Copies that some tools write beside the tensor they are tied to."""

COUNTERS = frozenset({"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"})
"""Constants that old versions of `transformers` wrote among the weights."""


def rows(config: ModelConfig) -> list[Row]:
    """The tensors a file holds for a model, layers numbered, in the order of the table.

    Positions and segments always have a row: a model without them writes what stands for them.
    """
    has: dict[Part, bool] = {
        "encoder": True,
        "pooler": config.pooler,
        "masked_lm": config.masked_lm,
        "next_sentence": config.next_sentence,
        "classify": bool(config.labels),
    }
    found: list[Row] = []
    for row in TABLE:
        if has[row.part]:
            layers = range(config.encoder.layers if "{layer}" in row.ours else 1)
            found += [
                row._replace(ours=row.ours.format(layer=i), hub=row.hub.format(layer=i))
                for i in layers
            ]
    return found


def shape(row: Row, config: ModelConfig) -> tuple[int, ...]:
    """The shape the tensor of a row has in a file."""
    encoder = config.encoder
    sizes = {
        "vocabulary": encoder.vocabulary,
        "hidden": encoder.hidden,
        "feed_forward": encoder.feed_forward,
        "longest": encoder.longest,
        # transformers cannot do without segments: two rows of zeros stand for none
        "segments": encoder.segments or 2,
        "labels": len(config.labels),
    }
    return tuple(axis if isinstance(axis, int) else sizes[axis] for axis in row.shape)


def standard(hub: str) -> str:
    """A name as some tool wrote it, but with the prefix ``bert.`` and today's norms."""
    if hub.partition(".")[0] in ("embeddings", "encoder", "pooler"):
        hub = f"bert.{hub}"
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        hub = hub.removesuffix(old) + new if hub.endswith(old) else hub
    return hub
