"""The names of tensors, ours and those of `transformers`: the table of a format, read both ways."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache, lru_cache

from torch import nn

from bertsmith.network.config import HEADS, EncoderConfig, ModelConfig
from bertsmith.network.encoder import Encoder
from bertsmith.network.heads import PRETRAINING_HEADS, Pooler
from bertsmith.network.model import empty_modules
from bertsmith.weights.formats.catalog import FORMATS, FormatName, format_of
from bertsmith.weights.formats.format import POSITIONS, WIDEN, E, H, Part, Row, linear

COUNTERS = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
"""Constants that old `transformers` wrote among the weights, below the family's name."""


def rows(config: ModelConfig) -> tuple[Row, ...]:
    """Return the tensors a file holds for a model, blocks numbered, in the order of the table.

    Positions always have a row, and segments where the family has any: a model without them writes
    what stands for them.
    """
    return rows_of(config.encoder, parts(config), format_of(config))


def parts(config: ModelConfig) -> set[Part]:
    """Return the parts that a model has."""
    results: set[Part] = {"encoder"}
    if config.pooler:
        results.add("pooler")
    results.update(config.pretraining_heads)
    if config.head is not None:
        results.add(config.head)
    return results


def rows_of(encoder: EncoderConfig, wanted: Collection[Part], form: FormatName) -> tuple[Row, ...]:
    """Return the tensors of some parts of a model, blocks numbered, in the order of the table."""
    return _rows(encoder, frozenset(wanted), form)


# the same few are asked for again and again while a folder is opened
@lru_cache(maxsize=64)
def _rows(encoder: EncoderConfig, wanted: frozenset[Part], form: FormatName) -> tuple[Row, ...]:
    if form == "bertsmith":
        return tuple(row for row in _own_rows(encoder) if row.part in wanted)
    table = [row for row in FORMATS[form].table if row.part in wanted]
    # a head may bring the layer that it reads the first token through
    brought = {row.ours for row in table if row.part != "pooler"}
    results: list[Row] = []
    for row in table:
        if row.part == "pooler" and row.ours in brought:
            continue
        if row.ours.startswith(WIDEN) and encoder.embedding is None:
            continue
        several = "{block}" in row.ours
        results += [
            row._replace(ours=row.ours.format(block=i), hub=row.hub.format(block=i))
            for i in range(row.first, (encoder.groups or encoder.layers) if several else 1)
        ]
    return tuple(results)


@cache
def _own_rows(encoder: EncoderConfig) -> list[Row]:
    """Return the tensors of our own format, by the names that they have in the model."""
    with empty_modules():
        modules: dict[Part, tuple[str, nn.Module]] = {
            "encoder": ("encoder", Encoder(encoder)),
            "pooler": ("pooler", Pooler(encoder)),
            **{name: (f"heads.{name}", make(encoder)) for name, make in PRETRAINING_HEADS.items()},
        }
    results = [
        Row(part, f"{start}.{name}", f"{start}.{name}", tuple(tensor.shape))
        for part, (start, module) in modules.items()
        for name, tensor in module.named_parameters()
    ]
    if encoder.positions == "sinusoidal":
        results.append(Row("encoder", POSITIONS, POSITIONS, ("longest", E)))
    outputs: dict[Part, str | int] = {"span": 2, "choose": 1}
    for head in dict.fromkeys(HEADS.values()):
        name = f"heads.{head}"
        results += linear(head, name, name, outputs.get(head, "labels"), H)
    return results


_IN_BLOCK = re.compile(r"encoder\.blocks\.(\d+)\.")


def block_of(ours: str) -> int | None:
    """Return the number of the encoder's block that a tensor of ours is in, None for the others."""
    match = _IN_BLOCK.match(ours)
    return None if match is None else int(match[1])


def shape(row: Row, config: ModelConfig) -> tuple[int, ...]:
    """Return the shape of the tensor of a row."""
    encoder = config.encoder
    sizes = {
        "vocabulary": encoder.vocabulary,
        "hidden": encoder.hidden,
        "width": encoder.embedding or encoder.hidden,
        "feed_forward": encoder.feed_forward,
        "longest": encoder.longest + encoder.position_offset,
        # transformers cannot do without segments: two rows of zeros stand for none
        "segments": encoder.segments or 2,
        "labels": len(config.labels),
    }
    return tuple(axis if isinstance(axis, int) else sizes[axis] for axis in row.shape)


def shape_in_file(row: Row, config: ModelConfig) -> tuple[int, ...]:
    """Return the shape of the tensor in a file that the tensor of a row is, or is a part of."""
    first, *others = shape(row, config)
    return (first * row.place[1], *others)


def standard(hub: str, kind: FormatName = "bert") -> str:
    """Return a name as some tool wrote it, but with the family's prefix and today's norms."""
    if hub.partition(".")[0] in FORMATS[kind].roots:
        hub = FORMATS[kind].prefix + hub
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        hub = hub.removesuffix(old) + new if hub.endswith(old) else hub
    return hub
