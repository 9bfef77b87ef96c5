"""What a distillation concludes from its table."""

from __future__ import annotations

import pytest
from scipy.stats import ttest_ind

from bertsmith.recipes.distil.report import Contender, conclusions, degenerate_notes
from bertsmith.tasks.uncertainty import Difference, holm
from bounds import metric


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (0.80, "the plain student is as good as the teacher: there is nothing"),
        (0.85, "the plain student is 5.00 points above the teacher: there is nothing"),
        (0.79, "the plain student is 1.00 points below the teacher: so small"),
    ],
)
def test_a_plain_student_beside_its_teacher(plain: float, said: str) -> None:
    scores = {"teacher": 0.80, "minilm": 0.80, "plain": plain}
    contenders = [
        Contender(name=name, scores=({"accuracy": score},)) for name, score in scores.items()
    ]
    difference = Difference(points=0.80 - plain, low=-0.1, high=0.1, p=0.5)
    assert conclusions(contenders, ["minilm"], {"minilm": difference})[-1].startswith(said)


@pytest.mark.parametrize(
    ("low", "p", "said"),
    [
        (-0.01, 0.3, "points); it may well be luck"),
        (0.01, 0.3, "points); it may still be luck by the stricter of two tests, p = 0.3"),
        (0.01, 0.001, "points)"),
    ],
)
def test_an_interval_without_zero_is_not_called_luck_without_a_reason(
    low: float, p: float, said: str
) -> None:
    scores = {"teacher": 0.8, "minilm": 0.7, "plain": 0.75}
    contenders = [
        Contender(name=name, scores=({"accuracy": score},)) for name, score in scores.items()
    ]
    difference = Difference(points=-0.05, low=-0.1, high=-low, p=p)
    assert conclusions(contenders, ["minilm"], {"minilm": difference})[0].endswith(said)
    contenders.insert(2, Contender(name="tinybert", scores=contenders[1].scores))
    both = dict.fromkeys(("minilm", "tinybert"), difference)
    corrected = ", corrected for 2 methods (Holm)" if "stricter" in said else ""
    for line in conclusions(contenders, list(both), both)[:2]:
        assert line.endswith(said + corrected)


def test_a_lead_that_other_seeds_may_turn_may_be_luck() -> None:
    """By scipy's Welch test the difference of the second pair of students is not significant."""
    plain = (0.740, 0.750, 0.760)
    for taught, luck in (((0.795, 0.800, 0.805), False), ((0.750, 0.765, 0.780), True)):
        assert (ttest_ind(taught, plain, equal_var=False).pvalue > 0.05) == luck
        seeds = {"teacher": (0.9,), "minilm": taught, "plain": plain}
        contenders = [
            Contender(name=name, scores=tuple({"accuracy": score} for score in scores))
            for name, scores in seeds.items()
        ]
        points = sum(taught) / 3 - 0.75
        difference = Difference(points=points, low=points - 0.001, high=points + 0.001, p=0.001)
        line = conclusions(contenders, ["minilm"], {"minilm": difference})[0]
        assert line.endswith("; it may well be luck") == luck


def test_students_that_predict_the_same_for_every_row_are_named() -> None:
    minilm, plain = degenerate_notes({"minilm": [True], "tinybert": [False], "plain": [True, True]})
    assert minilm.startswith("minilm: 1 of 1 seed predicts the same for every row: give more --epo")
    assert plain.startswith("plain: 2 of 2 seeds predict the same for every row")


def test_several_methods_are_corrected_for_their_number() -> None:
    """The example of three tests, by hand: 3 x 0.01, 2 x 0.03, and no less for 0.04."""
    values = {"a": 0.04, "b": 0.01, "c": 0.03}
    found = holm({n: Difference(points=0.1, low=0.01, high=0.2, p=p) for n, p in values.items()})
    assert list(found) == ["a", "b", "c"]
    assert [found[name].p for name in found] == metric([0.06, 0.03, 0.06])
    assert [found[name].certain for name in found] == [False, True, False]
