from __future__ import annotations

import contextlib
import io
from types import SimpleNamespace

import numpy as np
import pytest

from bertsmith.evaluation.spans import normalise, squad_v1, squad_v2, token_f1
from bounds import metric

referee = pytest.importorskip("transformers.data.metrics.squad_metrics")

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


def text(random: np.random.Generator) -> str:
    return " ".join(random.choice(WORDS, int(random.integers(0, 5))))


def case(number: int) -> tuple[dict[str, list[str]], dict[str, str], dict[str, float]]:
    """Questions with several answers or none, predictions like them, doubts with ties."""
    random = np.random.default_rng(number)
    possible = random.choice([0.0, 0.5, 1.0])
    answers, said, doubts = {}, {}, {}
    for index in range(int(random.integers(1, 30))):
        name = f"q{index}"
        count = int(random.integers(1, 4)) if random.random() < possible else 0
        answers[name] = [text(random) for _ in range(count)]
        copied = answers[name] and random.random() < 0.5
        said[name] = str(random.choice(answers[name])) if copied else text(random)
        if random.random() < 0.3:
            said[name] = ""
        doubts[name] = float(np.round(random.random(), 1 if number % 2 else 12))
    return answers, said, doubts


@pytest.mark.parametrize("with_doubts", [False, True])
def test_a_thousand_cases_of_version_2_equal_the_official_scores(with_doubts: bool) -> None:
    for number in range(1000):
        answers, said, doubts = case(number)
        threshold = float(np.random.default_rng(number).choice([0.0, 0.35, 0.5, 1.0]))
        examples = [
            SimpleNamespace(qas_id=name, answers=[{"text": each} for each in right])
            for name, right in answers.items()
        ]
        given = doubts if with_doubts else None
        expected = referee.squad_evaluate(examples, said, given, threshold)
        if not with_doubts:  # the script itself has no best thresholds then
            expected = {key: value for key, value in expected.items() if "best" not in key}
        found = squad_v2(answers, said, given, threshold)
        assert found == metric(dict(expected)), number


def test_a_prediction_that_is_missing_is_left_out_of_version_2() -> None:
    answers, said, _ = case(3)
    answers["missing"] = []
    answers = {name: [] for name in answers}
    examples = [SimpleNamespace(qas_id=name, answers=[]) for name in answers]
    said = {name: text for name, text in said.items() if name != "missing"}
    with contextlib.redirect_stdout(io.StringIO()), pytest.raises(KeyError):
        referee.squad_evaluate(examples, said)  # the script cannot count the group
    assert squad_v2(answers, said)["total"] == len(said)


def test_a_thousand_cases_of_version_1_by_its_definition() -> None:
    for number in range(1000):
        answers, said, _ = case(number)
        answers = {name: right for name, right in answers.items() if right}
        if not answers:
            continue
        exact, f1 = [], []
        for name, right in answers.items():
            exact.append(max(referee.compute_exact(each, said[name]) for each in right))
            # without any words on a side 1.1 counts 0, and 2.0 whether both have none
            scores = [
                referee.compute_f1(each, said[name]) if referee.normalize_answer(each) else 0.0
                for each in right
            ]
            f1.append(max(scores))
        expected = {"exact_match": 100 * np.mean(exact), "f1": 100 * np.mean(f1)}
        assert squad_v1(answers, said) == metric(expected), number


def test_a_prediction_that_is_missing_counts_0_in_version_1() -> None:
    answers = {"a": ["New York"], "b": ["Rome"]}
    assert squad_v1(answers, {"a": "new york"}) == {"exact_match": 50.0, "f1": 50.0}


def test_normalising() -> None:
    assert normalise("  The  Theatre, in an A-Team!  ") == "theatre in ateam"
    assert token_f1("", "") == token_f1("the", "a") == 1.0
    assert token_f1("x y y", "y x x") == pytest.approx(2 / 3)


def test_the_best_threshold_is_reached_when_it_is_applied() -> None:
    for number in range(0, 200, 2):  # those without ties
        answers, said, doubts = case(number)
        found = squad_v2(answers, said, doubts)
        for key in ("exact", "f1"):
            if found[f"best_{key}_thresh"]:
                again = squad_v2(answers, said, doubts, found[f"best_{key}_thresh"])
                # or passed: of impossible questions the script does not see that "the" says nothing
                assert again[key] >= found[f"best_{key}"] - 1e-9
