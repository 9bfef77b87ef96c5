"""The table of published models: parameters, and the memory they take.

    inference   the weights, and what lives at once of a batch: the output of every layer, as the
                encoder hands them on, and in the feed-forward network both sides of the activation
    training    what `preflight_room.need` finds: weights, gradients, AdamW's two moments, what the
                backward pass wants of one batch, and a copy of weights and moments while a
                checkpoint is saved

and of each what Python and the libraries take for themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from rich.box import SIMPLE_HEAD

from bertsmith.batches.pretraining import SampleConfig
from bertsmith.core.log import Table
from bertsmith.core.output import print_table
from bertsmith.network.encoder import EncoderConfig
from bertsmith.network.families.catalog import PRESETS, Preset, preset_config
from bertsmith.network.model import Model, ModelConfig
from bertsmith.recipes.room import need
from bertsmith.training.optimisers import OptimiserConfig

TOKENS = 4096
"""Tokens of the batch that memory is told for, 32 sequences of 128."""
_LONGEST = 128
# measured: a process that has imported all it needs, and what the first batch makes it load
_IMPORTED, _LOADED = 230_000_000, 70_000_000


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the table says of a model; memory in bytes."""

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    parameters: int
    published: str
    inference_fp32: int
    inference_bf16: int
    training_fp32: int


def models(names: Iterable[str] = PRESETS) -> list[ModelFacts]:
    """The facts of published models."""
    return [_facts(name, PRESETS[name]) for name in names]


def show(facts: Iterable[ModelFacts]) -> None:
    """Print them as a table."""
    table = Table(title="Published models", caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    table.caption = (
        "Parameters in millions, as the published count takes them. GB of memory of a whole "
        f"process, to run the encoder on batches of {TOKENS:,} tokens in sequences of {_LONGEST}, "
        "and to train it with them: masked LM, AdamW, a checkpoint being saved."
    )
    table.add_column("model", no_wrap=True)
    for title in ("layers/\nhidden", "parameters", "published", *_MEMORY.values()):
        table.add_column(title, justify="right", no_wrap=True)
    for each in facts:
        memory = (f"{getattr(each, field) / 1e9:,.1f}" for field in _MEMORY)
        count = f"{each.parameters / 1e6:,.1f}"
        table.add_row(each.name, f"{each.layers}/{each.hidden}", count, each.published, *memory)
    print_table(table)


def as_json(facts: Iterable[ModelFacts]) -> dict[str, Any]:
    """They, and what memory is told for, as plain values."""
    return {
        "tokens_per_batch": TOKENS,
        "longest": _LONGEST,
        "models": [dataclasses.asdict(each) for each in facts],
    }


_MEMORY = {
    "inference_fp32": "run\nfp32",
    "inference_bf16": "run\nbf16",
    "training_fp32": "train\nfp32",
}


def inference_memory(config: ModelConfig, *, tokens: int, width: int) -> int:
    """Bytes of a process that runs the encoder on a batch, with `width` bytes a value."""
    values = parameters(config) + tokens * _living(config.encoder)
    return width * values + _IMPORTED + _LOADED


def parameters(config: ModelConfig) -> int:
    """How many a model has, counted without allocating any."""
    with torch.device("meta"):
        model = Model(config)
    return sum(parameter.numel() for parameter in model.parameters())


def _living(encoder: EncoderConfig) -> int:
    """Values a token that live at once in the last layer, where most do."""
    inner = (4 if encoder.gated else 2) * encoder.feed_forward
    return (encoder.layers + 1 + 4) * encoder.hidden + inner


def _facts(name: str, preset: Preset) -> ModelFacts:
    config = preset_config(preset)
    encoder = config.encoder
    samples = SampleConfig(longest=_LONGEST, tokens_per_batch=TOKENS)
    trained = dataclasses.replace(config, masked_lm=True)
    return ModelFacts(
        name=name,
        family=preset.family,
        layers=encoder.layers,
        hidden=encoder.hidden,
        heads=encoder.heads,
        vocabulary=encoder.vocabulary,
        parameters=parameters(config),
        published=preset.published,
        inference_fp32=inference_memory(config, tokens=TOKENS, width=4),
        inference_bf16=inference_memory(config, tokens=TOKENS, width=2),
        training_fp32=_IMPORTED + need(trained, samples, OptimiserConfig(), "fp32").memory,
    )
