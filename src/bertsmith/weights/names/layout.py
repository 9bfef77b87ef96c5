"""The form of a family's names of tensors, and what the families have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from bertsmith.network.heads import HeadName

Part = Literal["encoder", "pooler", "masked_lm", "next_sentence"] | HeadName


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


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The names of a family's tensors in a file."""

    table: tuple[Row, ...]
    """All there are, one row for all layers."""
    tied: dict[str, str]
    """Copies that some tools write beside the tensor they are tied to."""
    prefix: str
    """What the names of an encoder's tensors begin with, but in the file of a bare encoder."""
    one_head: bool = False
    """Whether heads name their layers alike, so that a file holds but the one its config names."""

    @property
    def roots(self) -> frozenset[str]:
        """Return the prefixes of names in the file of a bare encoder."""
        own = [row.hub for row in self.table if row.hub.startswith(self.prefix)]
        return frozenset(name.removeprefix(self.prefix).partition(".")[0] for name in own)


Names = tuple[tuple[str, str, tuple[str | int, ...]], ...]
"""Tensors of one group: our name, the hub's, the axes."""

V, H, F, E = "vocabulary", "hidden", "feed_forward", "width"

POSITIONS = "encoder.embeddings.positions.weight"
SEGMENTS = "encoder.embeddings.segments.weight"

EMBEDDINGS: Names = (
    ("tokens.weight", "word_embeddings.weight", (V, E)),
    ("positions.weight", "position_embeddings.weight", ("longest", E)),
    ("segments.weight", "token_type_embeddings.weight", ("segments", E)),
    ("norm.weight", "LayerNorm.weight", (E,)),
    ("norm.bias", "LayerNorm.bias", (E,)),
)


def named(part: Part, ours: str, hub: str, table: Names) -> list[Row]:
    """The rows of a group of tensors whose names begin alike."""
    return [Row(part, f"{ours}.{one}", f"{hub}.{other}", shape) for one, other, shape in table]


def linear(part: Part, ours: str, hub: str, outputs: str | int, inputs: str) -> list[Row]:
    """The rows of a linear layer."""
    both: Names = (("weight", "weight", (outputs, inputs)), ("bias", "bias", (outputs,)))
    return named(part, ours, hub, both)


def usual_heads() -> list[Row]:
    """The rows of the heads that most families name alike."""
    return [
        *linear("classify", "heads.classify", "classifier", "labels", H),
        *linear("tag", "heads.tag", "classifier", "labels", H),
        *linear("span", "heads.span", "qa_outputs", 2, H),
        *linear("choose", "heads.choose", "classifier", 1, H),
    ]
