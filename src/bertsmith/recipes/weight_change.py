"""How far fine-tuning has moved each layer's weights."""

from __future__ import annotations

from pathlib import Path

from bertsmith.models.model import Model
from bertsmith.weights.folder import load_model


def weight_change(before: Path, after: Path) -> list[tuple[str, float]]:
    """The length of each layer's change over that of its weights: embeddings, then every block."""
    first, last = load_model(before)[0], load_model(after)[0]
    layers = range(len(first.encoder.blocks))
    places = ["encoder.embeddings.", *(f"encoder.blocks.{n}." for n in layers)]
    names = ["embeddings", *(f"layer {n + 1}" for n in layers)]
    return [(name, _change(first, last, place)) for name, place in zip(names, places, strict=True)]


def _change(before: Model, after: Model, place: str) -> float:
    moved = length = 0.0
    later = dict(after.named_parameters())
    for name, parameter in before.named_parameters():
        if name.startswith(place):
            one, other = parameter.detach().double(), later[name].detach().double()
            moved += float((other - one).square().sum())
            length += float(one.square().sum())
    return float((moved / length) ** 0.5) if length else 0.0
