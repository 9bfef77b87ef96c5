"""Sentences of the report on tags and attention heads."""

from __future__ import annotations

import numpy as np
import pytest

from bertsmith.analysis.heads.tag_pairs import PairFigures
from bertsmith.reports.annotations import _pairs
from bertsmith.reports.drawing import Drawing


def pair(asked: str, wanted: str, accuracy: float) -> PairFigures:
    return PairFigures(
        accuracy=np.array([[0.1, accuracy]]), held_out=accuracy, asked=asked, wanted=wanted,
        count=90, chance=0.2, offset=1, offset_accuracy=0.3,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("random", "said"),
    [
        ((0.7, 0.2), "The largest gain is for DT → NN: in head 1-2, 60.0 % of 90 words"),
        ((0.7, 0.7), "No head does; the nearest is for JJ → NN: in head 1-2, 65.0 %"),
        (None, "The largest gain is for JJ → NN: in head 1-2, 65.0 % of 90 words"),
    ],
)
def test_a_gain_is_one_over_random_weights_too(
    random: tuple[float, float] | None, said: str
) -> None:
    drawn: list[str] = []

    def placed(name: str, drawing: Drawing, label: str, words: str) -> str:
        del name, drawing, label
        drawn.append(words)
        return ""

    results = [pair("JJ", "NN", 0.65), pair("DT", "NN", 0.6)]
    control = [] if random is None else [pair("JJ", "NN", random[0]), pair("DT", "NN", random[1])]
    _pairs(results, control, placed)
    assert said in drawn[0]
