"""What a distillation concludes from its table."""

from __future__ import annotations

import pytest

from bertsmith.recipes.distil.report import Entrant, conclusions
from bertsmith.recipes.finetune.outcome import Difference


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
    entrants = [Entrant(name=name, scores=({"accuracy": each},)) for name, each in scores.items()]
    difference = Difference(points=0.80 - plain, low=-0.1, high=0.1, p=0.5)
    assert conclusions(entrants, ["minilm"], {"minilm": difference})[-1].startswith(said)
