"""The layers that vectors are made of, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bertsmith.errors import ConfigError
from bertsmith.layers.mix import LayerMix

_MIX = "mix:"


def _sum(layers: range) -> LayerMix:
    return LayerMix(layers=tuple(layers), weights=(1.0,) * len(layers))


def _one(layer: int) -> LayerMix:
    return LayerMix(layers=(layer,), weights=(1.0,))


NAMED: dict[str, tuple[int, Callable[[int], LayerMix]]] = {
    "embeddings": (0, lambda last: _one(0)),
    "first": (1, lambda last: _one(1)),
    "last": (1, _one),
    "second-to-last": (1, lambda last: _one(last - 1)),
    "sum-last-4": (4, lambda last: _sum(range(last - 3, last + 1))),
    "concat-last-4": (4, lambda last: LayerMix(layers=tuple(range(last - 3, last + 1)))),
    "sum-all": (1, lambda last: _sum(range(1, last + 1))),
}
"""By name, how many layers there have to be, and what it is where so many are there.

The rows of Devlin et al. 2018, table 7, and the first layer. Sums are those of the last four and
of all layers without the embeddings.
"""


def layer_mix(name: str, layers: int) -> LayerMix:
    """The mix of a name in a model of so many layers; raises `ConfigError`.

    A name of `NAMED`, a layer's number from 0 (the embeddings), ``mix:FILE`` for a mix that was
    learned and kept as JSON, or ``mix:W,W,...`` for a factor a layer, with the embeddings or
    without.
    """
    if name.isdecimal():
        return _checked(_one(int(name)), name, layers)
    if name.startswith(_MIX):
        return _checked(_mix(name.removeprefix(_MIX), layers), name, layers)
    if name not in NAMED:
        known = ", ".join(NAMED)
        raise ConfigError(
            f"there is no layer {name!r}",
            remedy=f"name one of 0 to {layers}, {known}, or mix:FILE, or mix:WEIGHT,WEIGHT,...",
        )
    least, made = NAMED[name]
    if layers < least:
        raise ConfigError(
            f"layer is {name!r}, and the model has {layers} layers", remedy="name another"
        )
    return made(layers)


def _mix(said: str, layers: int) -> LayerMix:
    if "," not in said:
        return LayerMix.load(Path(said))
    try:
        weights = tuple(map(float, said.split(",")))
    except ValueError as error:
        raise ConfigError(
            f"{said!r} is no list of weights", remedy="write mix:0.2,0.3,0.5"
        ) from error
    if len(weights) not in (layers, layers + 1):
        raise ConfigError(
            f"{len(weights)} weights for {layers} layers",
            remedy=f"give {layers}, or {layers + 1} where the first is of the embeddings",
        )
    return LayerMix(layers=tuple(range(layers + 1 - len(weights), layers + 1)), weights=weights)


def _checked(mix: LayerMix, name: str, layers: int) -> LayerMix:
    if mix.layers[-1] > layers:
        raise ConfigError(
            f"layer {name!r} asks for layer {mix.layers[-1]}, and the model has {layers}",
            remedy=f"they are numbered 0 (embeddings) to {layers}",
        )
    return mix
