"""The record of a format of model folders: names of settings and tensors, and what it can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from bertsmith.core.errors import ConfigError
from bertsmith.network.config import EncoderConfig, HeadName, PretrainingHead

Part = Literal["encoder", "pooler"] | PretrainingHead | HeadName


class Row(NamedTuple):
    """One tensor: the part it belongs to, its two names, and its shape by the names of its axes.

    Where several tensors of ours stand in one of a file, along its first axis, `place` is which of
    how many this one is. Blocks before `first` have none.
    """

    part: Part
    ours: str
    hub: str
    shape: tuple[str | int, ...]
    place: tuple[int, int] = (0, 1)
    first: int = 0


Settings = dict[str, Any]
"""The contents of a `config.json`, or settings of ours by name."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """The settings and tensors of a family's folders, as its classes in `transformers` name them.

    `read`, `write` and `upgrade` are for what no table can say; they raise `ConfigError`.
    """

    classes: str
    """The beginning of the names of its classes."""
    table: tuple[Row, ...]
    """All tensors there are, one row for all layers."""
    prefix: str
    """The beginning of the names of an encoder's tensors, but in the file of a bare encoder."""
    tied: Mapping[str, str]
    """Copies that some tools write beside the tensor they are tied to."""
    one_head: bool = False
    """True if heads name their layers alike, so that a file holds but the one its config names."""
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    """The heads that a class holds, by the end of its name, where no other format's does."""
    keys: Mapping[str, str]
    """Keys of `config.json` by the names of our settings. `longest` counts unused rows too."""
    defaults: Mapping[str, Any]
    """Values that `transformers` takes for settings that are not there; it has none for sizes."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Keys that are always written, and whose other values cannot be followed."""
    holds: Mapping[str, tuple[Any, ...]]
    """The values that settings of the encoder may have; of one that is not named, any."""
    needs: tuple[str, ...] = ()
    """Settings that must not be None or 0."""
    refuses: Callable[[EncoderConfig], str | None] = lambda encoder: None
    """Returns why it cannot hold an encoder, where that is no matter of one setting."""
    read: Callable[[Settings], Settings] = lambda data: {}
    """Returns settings of the encoder that follow from a `config.json` in its own way."""
    write: Callable[[EncoderConfig, tuple[int, int]], Settings] = lambda encoder, ends: {}
    """Returns keys that follow from the encoder, and the ids at both ends of a sequence."""
    upgrade: Callable[[Settings], Settings] = lambda data: data
    """Returns a `config.json` with the keys that `transformers` 4 writes."""

    @cached_property
    def roots(self) -> frozenset[str]:
        """Return the prefixes of names in the file of a bare encoder."""
        prefixed = [row.hub for row in self.table if row.hub.startswith(self.prefix)]
        return frozenset(name.removeprefix(self.prefix).partition(".")[0] for name in prefixed)

    def cannot_hold(self, encoder: EncoderConfig) -> str | None:
        """Return why its classes do not compute what an encoder does; None where they do."""
        for name, values in self.holds.items():
            if (value := getattr(encoder, name)) not in values:
                return f"{self.classes}Model of transformers cannot have {name} set to {value!r}"
        for name in self.needs:
            if not (value := getattr(encoder, name)):
                return f"{self.classes}Model of transformers cannot have {name} set to {value!r}"
        return self.refuses(encoder)


Names = tuple[tuple[str, str, tuple[str | int, ...]], ...]
"""Tensors of one group: our name, the hub's, the axes."""

V, H, F, E = "vocabulary", "hidden", "feed_forward", "width"

POSITIONS = "encoder.embeddings.positions.weight"
WIDEN = "encoder.embeddings.widen"
SEGMENTS = "encoder.embeddings.segments.weight"

EMBEDDINGS: Names = (
    ("tokens.weight", "word_embeddings.weight", (V, E)),
    ("positions.weight", "position_embeddings.weight", ("longest", E)),
    ("segments.weight", "token_type_embeddings.weight", ("segments", E)),
    ("norm.weight", "LayerNorm.weight", (E,)),
    ("norm.bias", "LayerNorm.bias", (E,)),
)


def named(part: Part, ours: str, hub: str, table: Names) -> list[Row]:
    """Return the rows of a group of tensors whose names begin alike."""
    return [Row(part, f"{ours}.{one}", f"{hub}.{other}", shape) for one, other, shape in table]


_LAYER: Mapping[str, tuple[str, ...]] = {
    "attention.query": (H, H),
    "attention.key": (H, H),
    "attention.value": (H, H),
    "attention.output": (H, H),
    "attention_norm": (H,),
    "feed_forward.up": (F, H),
    "feed_forward.down": (H, F),
    "feed_forward_norm": (H,),
}
"""The parts of a layer that have weights and biases, and the axes of the weights."""


def layer(names: Mapping[str, str]) -> Names:
    """Return the tensors of a layer, given the names of its parts, ours and the hub's."""
    return tuple(
        (f"{ours}.{kind}", f"{hub}.{kind}", axes)
        for ours, hub in names.items()
        for kind, axes in (("weight", _LAYER[ours]), ("bias", _LAYER[ours][:1]))
    )


def masked_lm(dense: str, norm: str, width: str = H) -> Names:
    """Return the tensors of a masked-LM head, given the hub's names of its parts."""
    return (
        ("dense.weight", f"{dense}.weight", (width, H)),
        ("dense.bias", f"{dense}.bias", (width,)),
        ("norm.weight", f"{norm}.weight", (width,)),
        ("norm.bias", f"{norm}.bias", (width,)),
        ("bias", "bias", (V,)),
    )


def of_encoder(form: Format, prefix: str) -> list[Row]:
    """Return the rows of an encoder that is another format's but for the prefix of its names."""
    names = [(row, row.hub.removeprefix(form.prefix)) for row in form.table]
    return [row._replace(hub=prefix + name) for row, name in names if row.part == "encoder"]


def linear(part: Part, ours: str, hub: str, outputs: str | int, inputs: str) -> list[Row]:
    """Return the rows of a linear layer."""
    both: Names = (("weight", "weight", (outputs, inputs)), ("bias", "bias", (outputs,)))
    return named(part, ours, hub, both)


def usual_heads() -> list[Row]:
    """Return the rows of the heads that most families name alike."""
    return [
        *linear("classify", "heads.classify", "classifier", "labels", H),
        *linear("tag", "heads.tag", "classifier", "labels", H),
        *linear("span", "heads.span", "qa_outputs", 2, H),
        *linear("choose", "heads.choose", "classifier", 1, H),
    ]


KEYS = {
    "vocabulary": "vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "longest": "max_position_embeddings",
    "segments": "type_vocab_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
    "norm_epsilon": "layer_norm_eps",
    "initial_std": "initializer_range",
}
"""The keys that most families have."""

DEFAULTS: Settings = {
    "segments": 2,
    "activation": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "norm_epsilon": 1e-12,
    "initial_std": 0.02,
}
"""Their defaults."""

HOLDS: dict[str, tuple[Any, ...]] = {
    "embedding": (None,),
    "groups": (None,),
    "position_offset": (0,),
    "positions": ("learned", "sinusoidal", "none"),
    "window": (None,),
    "gated": (False,),
    "norm": ("after",),
    "biases": (True,),
    "pooling": ("tanh",),
    "pooled": ("first", "last"),
    "causal": (False,),
}
"""The wiring of most families."""


def without(table: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a table without some of its entries."""
    return {name: value for name, value in table.items() if name not in names}


def own_positions(data: Settings, usual: str = "learned") -> Settings:
    """Return positions and segments that `transformers` has as constants, under keys of our own."""
    known = ("learned", "sinusoidal", "none")
    result = data.get("bertsmith_positions", usual)
    if result not in known:
        raise ConfigError(
            f"bertsmith_positions is {result!r}", remedy=f"it can be {', '.join(known)}"
        )
    return {"positions": result} | ({"segments": 0} if data.get("bertsmith_segments") == 0 else {})


def absolute(encoder: EncoderConfig, _: tuple[int, int] = (0, 0)) -> Settings:
    """Return the keys of positions and segments of most families."""
    data: Settings = {
        "position_embedding_type": "absolute",
        "type_vocab_size": encoder.segments or 2,
    }
    if not encoder.segments:
        data["bertsmith_segments"] = 0
    if encoder.positions != "learned":
        data["bertsmith_positions"] = encoder.positions
    return data
