"""The table of published models: parameters, and the memory they take.

    inference   the weights, and the tensors of a batch that are alive at once: the output of every
                layer, as the encoder returns them, and both sides of the feed-forward activation
    training    the result of `recipes.room.need`: weights, gradients, AdamW's two moments, what
                the backward pass needs of one batch, and a copy of weights and moments while a
                checkpoint is saved

plus the memory of Python and the libraries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from rich.box import SIMPLE_HEAD

from bertsmith.batches.config import SampleConfig
from bertsmith.core.log import Table
from bertsmith.core.output import print_table
from bertsmith.network.encoder import EncoderConfig
from bertsmith.network.families.catalog import PRESETS
from bertsmith.network.model import Model, ModelConfig, preset_config
from bertsmith.recipes.room import need
from bertsmith.training.config import OptimiserConfig

TOKENS = 4096
"""Tokens of the batch for which memory is given, 32 sequences of 128."""
_LONGEST = 128
# measured: a process with all imports, and what the first batch loads
_IMPORTED, _LOADED = 230_000_000, 70_000_000


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A row of the table; memory in bytes."""

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
    """Return the facts of published models."""
    return [_facts(name) for name in names]


def show(facts: Iterable[ModelFacts]) -> None:
    """Print the models as a table."""
    table = Table(title="Published models", caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    table.caption = (
        "Parameters in millions, as the published count takes them. GB of memory of a whole "
        f"process, to run the encoder on batches of {TOKENS:,} tokens in sequences of {_LONGEST}, "
        "and to train it with them: masked LM, AdamW, a checkpoint being saved."
    )
    table.add_column("model", no_wrap=True)
    for title in ("layers/\nhidden", "parameters", "published", *_MEMORY.values()):
        table.add_column(title, justify="right", no_wrap=True)
    for item in facts:
        memory = (f"{getattr(item, field) / 1e9:,.1f}" for field in _MEMORY)
        count = f"{item.parameters / 1e6:,.1f}"
        table.add_row(item.name, f"{item.layers}/{item.hidden}", count, item.published, *memory)
    print_table(table)


def as_json(facts: Iterable[ModelFacts]) -> dict[str, Any]:
    """Return the models, and the batch that memory is given for, as plain values."""
    return {
        "tokens_per_batch": TOKENS,
        "longest": _LONGEST,
        "models": [dataclasses.asdict(item) for item in facts],
    }


_MEMORY = {
    "inference_fp32": "run\nfp32",
    "inference_bf16": "run\nbf16",
    "training_fp32": "train\nfp32",
}


def inference_memory(config: ModelConfig, *, tokens: int, width: int) -> int:
    """Return the bytes of a process that runs the encoder on a batch, `width` bytes per value."""
    values = parameters(config) + tokens * _living(config.encoder)
    return width * values + _IMPORTED + _LOADED


def parameters(config: ModelConfig) -> int:
    """Return the number of parameters, counted without allocating any."""
    with torch.device("meta"):
        model = Model(config)
    return sum(parameter.numel() for parameter in model.parameters())


def _living(encoder: EncoderConfig) -> int:
    """Return the values per token alive at once in the last layer, where most are."""
    inner = (4 if encoder.gated else 2) * encoder.feed_forward
    return (encoder.layers + 1 + 4) * encoder.hidden + inner


def _facts(name: str) -> ModelFacts:
    config = preset_config(name)
    encoder = config.encoder
    samples = SampleConfig(max_length=_LONGEST, tokens_per_batch=TOKENS)
    trained = dataclasses.replace(config, masked_lm=True)
    return ModelFacts(
        name=name,
        family=encoder.family,
        layers=encoder.layers,
        hidden=encoder.hidden,
        heads=encoder.heads,
        vocabulary=encoder.vocabulary,
        parameters=parameters(config),
        published=PRESETS[name][1].published,
        inference_fp32=inference_memory(config, tokens=TOKENS, width=4),
        inference_bf16=inference_memory(config, tokens=TOKENS, width=2),
        training_fp32=_IMPORTED + need(trained, samples, OptimiserConfig(), "fp32").memory,
    )
