"""The experiments, as data: cells of options for `bertsmith pretrain`, and the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ClsPosition = Literal["first", "last"]

RANDOM = ("--initialisation", "random")
WITHIN_DOCUMENTS = ("--sequences", "within_documents")
LEFT_TO_RIGHT = (*WITHIN_DOCUMENTS, "--left-to-right")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One way to pre-train."""

    name: str
    options: tuple[str, ...] = ()
    """Options of `bertsmith pretrain`, beside those that all cells have."""
    size: str = "2/128"
    """Layers and width; heads are 64 wide, as in all published BERTs."""
    steps: float = 1.0
    """Steps in multiples of the usual number; 0 stands for one step, as good as none."""
    cls: ClsPosition = "first"
    """Position of [CLS] in every sequence."""
    published: Mapping[str, float] = field(default_factory=dict)
    """The paper's figures for this setting, by the name of the measurement."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Cells to compare with the first of them."""

    title: str
    tasks: tuple[str, ...]
    """What the cells are fine-tuned on (tasks.py)."""
    cells: tuple[Cell, ...]


def _masked(mask: int, same: int, random: int, *published: float) -> Cell:
    """Return a row of table 8: percentages of [MASK], of the token itself, of a random one."""
    names = ("MNLI", "NER fine-tuned", "NER features")
    return Cell(
        name=f"{mask}/{same}/{random}",
        options=(
            "--masking.as-mask", str(mask / 100), "--masking.as-random", str(random / 100)
        ),
        published=dict(zip(names, published, strict=True)),
    )  # fmt: skip


def _objective(name: str, options: tuple[str, ...], *published: float) -> Cell:
    """Return a row of table 5."""
    names = ("MNLI", "QNLI", "MRPC", "SST-2", "SQuAD F1")
    return Cell(name=name, options=options, published=dict(zip(names, published, strict=True)))


def _sized(size: str) -> Cell:
    return Cell(name=size, size=size)


def _longer(name: str, options: tuple[str, ...], multiples: tuple[float, ...]) -> tuple[Cell, ...]:
    """Return points of a curve of figure 5."""
    return tuple(
        Cell(name=f"{name}, {steps:g} x", options=options, steps=steps) for steps in multiples
    )


EXPERIMENTS: dict[str, Experiment] = {
    "masking": Experiment(
        title="Masking: [MASK]/same/random (table 8)",
        tasks=("trec", "ner", "ner-frozen"),
        cells=(
            _masked(80, 10, 10, 84.2, 95.4, 94.9),
            _masked(100, 0, 0, 84.3, 94.9, 94.0),
            _masked(80, 0, 20, 84.1, 95.2, 94.6),
            _masked(80, 20, 0, 84.4, 95.2, 94.7),
            _masked(0, 20, 80, 83.7, 94.8, 94.6),
            _masked(0, 0, 100, 83.6, 94.9, 94.6),
        ),
    ),
    "objectives": Experiment(
        title="Objectives (table 5)",
        tasks=("qnli", "trec", "ner"),
        cells=(
            _objective("masked LM + NSP", (), 84.4, 88.4, 86.7, 92.7, 88.5),
            _objective("no NSP", WITHIN_DOCUMENTS, 83.9, 84.9, 86.5, 92.6, 87.9),
            _objective("left to right, no NSP", LEFT_TO_RIGHT, 82.1, 84.3, 77.5, 92.1, 77.8),
        ),
    ),
    "segments": Experiment(
        title="Segment embeddings",
        tasks=("qnli", "trec", "ner"),
        cells=(
            Cell(name="2 segments"),
            Cell(name="none", options=("--segments", "0")),
        ),
    ),
    "cls": Experiment(
        title="Position of [CLS]",
        tasks=("qnli", "trec", "ner"),
        cells=(
            Cell(name="first"),
            Cell(name="last", cls="last"),
        ),
    ),
    "size": Experiment(
        title="Depth and width (table 6)",
        tasks=("trec", "ner"),
        cells=tuple(map(_sized, ("2/128", "1/128", "4/128", "2/64", "2/256"))),
    ),
    "steps": Experiment(
        title="Pre-training steps (figure 5)",
        tasks=("trec", "ner"),
        cells=(
            Cell(name="masked, 1 x"),
            Cell(name="no pre-training", options=RANDOM, steps=0.0),
            *_longer("masked", (), (0.25, 0.5)),
            *_longer("left to right", LEFT_TO_RIGHT, (0.25, 0.5, 1.0)),
        ),
    ),
    "order": Experiment(
        title="Positions, all from random weights",
        tasks=("trec", "ner"),
        cells=tuple(
            Cell(name=kind, options=(*RANDOM, "--positions", kind), steps=4.0)
            for kind in ("learned", "sinusoidal", "none")
        ),
    ),
}
"""By name, the more asked-for first."""
