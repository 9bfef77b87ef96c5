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


def drawn_pairs(results: list[PairFigures]) -> tuple[str, str]:
    """The bars of pairs of tags, and what stands below them."""
    drawn: list[str] = []

    def placed(name: str, drawing: Drawing, label: str, words: str) -> str:
        del name, label, words
        drawn.append(drawing.svg)
        return ""

    below = _pairs(results, [], placed)
    return drawn[0], below


def test_bars_of_long_tags_name_both_of_them() -> None:
    begun = "a tag that goes on and on, "
    svg, below = drawn_pairs([pair(f"1 {begun}", f"2 {begun}", 0.6), pair("DT", "NN", 0.5)])
    assert ">1 a tag that goes o… → 2 a tag that goes o…</text>" in svg
    assert ">DT → NN</text>" in svg
    assert f"1 {begun} → 2 {begun}" in below


@pytest.mark.parametrize("pairs", [30, 31])
def test_more_pairs_are_announced_where_there_are_more(pairs: int) -> None:
    _, below = drawn_pairs([pair(f"T{number}", "NN", 0.6) for number in range(pairs)])
    assert ("the JSON file contains more" in below) == (pairs > 30)
