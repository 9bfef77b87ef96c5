"""The padded model against the network, which reads sequences end to end: every family and head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertsmith.network.batch import Batch, pack
from bertsmith.network.model import Model
from bertsmith.network.pooling import POOLINGS, Dense, Truncation, UnitLength
from bertsmith.recipes.export.graph import PaddedModel, input_names
from bertsmith.recipes.export.runtimes import engine_outputs, padded_inputs
from bertsmith.weights.sentence_folder import SentenceSettings
from bounds import close_when_regrouped
from families import LENGTHS, MODELS, WIRINGS, varied


def sequences(*lengths: int) -> Batch:
    random = np.random.default_rng(5)
    ids = [random.integers(5, 99, length) for length in lengths]
    return pack(ids, [random.integers(0, 2, length) for length in lengths])


def padded(model: Model, batch: Batch) -> dict[str, Tensor]:
    choices = 3 if model.config.predicts == "choice" else None
    found = padded_inputs(batch, input_names(model.config), pad_id=0, choices=choices)
    return {name: torch.from_numpy(result) for name, result in found.items()}


@torch.no_grad()
def agrees(model: Model, inputs: dict[str, Tensor], batch: Batch, real: Tensor) -> None:
    """Every output is the network's."""
    graph = PaddedModel(model)
    expected, found = engine_outputs(model, batch), graph(**inputs)
    assert list(expected) == graph.outputs
    for mine, (name, other) in zip(found, expected.items(), strict=True):
        if len(other) == batch.tokens != batch.sequences:
            close_when_regrouped(mine[real], other, name)
        else:
            close_when_regrouped(mine.flatten() if other.dim() == 1 else mine, other, name)


@pytest.mark.parametrize("case", [*MODELS, *WIRINGS])
def test_padding_changes_nothing(case: str) -> None:
    model, batch = varied((MODELS | WIRINGS)[case]), sequences(*LENGTHS)
    inputs = padded(model, batch)
    real = inputs["attention_mask"].bool()
    agrees(model, inputs, batch, real)
    if model.config.predicts != "choice":
        left = {name: value.flip(1) for name, value in padded(model, _reversed(batch)).items()}
        agrees(model, left, batch, real.flip(1))
    alone = sequences(*([9] * 3 if model.config.predicts == "choice" else [9]))
    inputs = padded(model, alone)
    agrees(model, inputs, alone, inputs["attention_mask"].bool())


def _reversed(batch: Batch) -> Batch:
    """Every sequence from its end, so that flipped and padded it stands as it was."""
    parts = [batch.ids.split(list(batch.lengths)), batch.segments.split(list(batch.lengths))]
    ids, segments = ([item.flip(0).numpy() for item in part] for part in parts)
    return pack(ids, segments)


@torch.no_grad()
def test_a_row_of_padding_leaves_the_others_alone() -> None:
    for case in ("bert-class", "modernbert-tags", "bert-none"):
        model, batch = varied(MODELS[case]), sequences(5, 3)
        inputs = padded(model, batch)
        more = {name: torch.cat([item, item[:1] * 0]) for name, item in inputs.items()}
        graph = PaddedModel(model)
        for one, other in zip(graph(**inputs), graph(**more), strict=True):
            assert bool(other.isfinite().all())
            close_when_regrouped(other[:2], one)


@pytest.mark.parametrize("kind", POOLINGS)
@torch.no_grad()
def test_sentence_vectors_are_the_folders(kind: Any) -> None:  # noqa: ANN401
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(17, 64, generator=generator), torch.randn(17, generator=generator)
    settings = SentenceSettings(
        network=Path(),
        pool=(kind, "mean"),
        after=(Dense(weight, bias, "GELU"), UnitLength(), Truncation(7)),
    )
    model, batch = varied(MODELS["bert-none"]), sequences(*LENGTHS)
    graph = PaddedModel(model, settings)
    assert graph.outputs == ["last_hidden_state", "sentence_embedding"]
    expected = engine_outputs(model, batch, settings)["sentence_embedding"]
    close_when_regrouped(graph(**padded(model, batch))[1], expected)
    flipped = {name: value.flip(1) for name, value in padded(model, _reversed(batch)).items()}
    close_when_regrouped(graph(**flipped)[1], expected)
