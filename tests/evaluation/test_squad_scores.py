from __future__ import annotations

import numpy as np
import pytest

from bertsmith.evaluation.spans import normalise, score_v1, score_v2, token_f1
from bounds import metric
from evaluation.official import squad_v1, squad_v2

WORDS = [
    "The",
    "a",
    "An",
    "theatre",
    "U.S.",
    "1,000",
    "—",
    "!",
    "été",
    "Ⅳ",
    "new\u00a0york",
    "",
    "the.",
]


many = pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.faults)])


def text(random: np.random.Generator) -> str:
    return " ".join(random.choice(WORDS, int(random.integers(0, 5))))


def case(number: int) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Questions with several answers or none, and predictions like them."""
    random = np.random.default_rng(number)
    possible = random.choice([0.0, 0.5, 1.0])
    answers, said = {}, {}
    for index in range(int(random.integers(1, 30))):
        name = f"q{index}"
        count = int(random.integers(1, 4)) if random.random() < possible else 0
        answers[name] = [text(random) for _ in range(count)]
        copied = answers[name] and random.random() < 0.5
        said[name] = str(random.choice(answers[name])) if copied else text(random)
        if random.random() < 0.3:
            said[name] = ""
    return answers, said


@many
def test_random_cases_of_version_2_equal_the_official_scores(count: int) -> None:
    for number in range(count):
        answers, said = case(number)
        scores = [score_v2(right, said[name]) for name, right in answers.items()]
        exact, f1 = 100 * np.mean(scores, axis=0)
        official = squad_v2(answers, said)
        assert {"exact": exact, "f1": f1} == metric({k: official[k] for k in ("exact", "f1")})


@many
def test_random_cases_of_version_1_by_its_definition(count: int) -> None:
    for number in range(count):
        answers, said = case(number)
        answers = {name: right for name, right in answers.items() if right}
        if not answers:
            continue
        scores = [score_v1(right, said[name]) for name, right in answers.items()]
        exact, f1 = 100 * np.mean(scores, axis=0)
        assert {"exact_match": exact, "f1": f1} == metric(squad_v1(answers, said)), number


def test_normalising() -> None:
    assert normalise("  The  Theatre, in an A-Team!  ") == "theatre in ateam"
    assert token_f1("", "") == token_f1("the", "a") == 1.0
    assert token_f1("x y y", "y x x") == pytest.approx(2 / 3)
