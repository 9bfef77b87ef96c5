"""Where to abstain, against a search over all thresholds."""

from __future__ import annotations

import numpy as np
import pytest

from bertsmith.tasks.confidence import (
    abstention_note,
    chosen_record,
    confidence_for,
    tune_confidence,
)


@pytest.mark.parametrize("seed", range(20))
def test_as_many_rows_as_possible_are_answered_at_the_accuracy_wanted(seed: int) -> None:
    random = np.random.default_rng(seed)
    sure = random.choice([0.3, 0.5, 0.6, 0.75, 0.9, 0.99], random.integers(1, 30))
    right = random.random(len(sure)) < sure
    wanted = float(random.choice([0.5, 0.8, 0.95, 1.0]))
    good = [t for t in set(sure.tolist()) if right[sure >= t].mean() >= wanted]
    found = confidence_for(right, sure, wanted)
    if not good:
        assert found is None
    else:
        assert found is not None
        assert (sure >= found).sum() == (sure >= min(good)).sum()


def test_a_note_says_how_many_are_answered_and_how_many_rightly() -> None:
    right, sure = np.array([True, False, True, False]), np.array([0.9, 0.8, 0.7, 0.2])
    note = abstention_note(right, sure, 0.7, "texts")
    assert "75.00 % of the texts, 66.67 % of them right" in note
    assert "none is given" in abstention_note(right, sure, 0.95, "texts")


@pytest.mark.parametrize(
    ("true", "accuracy", "answered"),
    [
        ((1, 0, 0), None, ["b", "b", "a"]),
        ((1, 0, 0), 0.5, ["b", "b", "a"]),
        ((1, 0, 0), 1.0, ["b", None, None]),
        # no threshold gives it: nothing but certainty is answered
        ((0, 1, 0), 1.0, [None, None, None]),
    ],
)
def test_answers_are_withheld_below_the_confidence_that_gives_the_accuracy(
    true: tuple[int, ...], accuracy: float | None, answered: list[str | None]
) -> None:
    answers = [np.array(shares) for shares in ([0.1, 0.9], [0.3, 0.7], [0.6, 0.4])]
    chosen = [(float(answer.argmax()), float(answer.max())) for answer in answers]
    evidence = np.array([(label, *one) for label, one in zip(true, chosen, strict=True)])
    tuned = tune_confidence(evidence, accuracy)
    records = [chosen_record("label", answer, "ab", tuned) for answer in answers]
    assert [record["label"] for record in records] == answered
    assert [record["probability"] for record in records] == [0.9, 0.7, 0.6]


@pytest.mark.parametrize("steps", range(4))
def test_a_threshold_between_two_neighbours_of_float32_parts_them(steps: int) -> None:
    # models answer in float32, in which the threshold itself would be one of the two
    sure = np.float32(1) - np.float32(2.0**-24) * np.float32(steps + 1)
    unsure = np.nextafter(sure, np.float32(0))
    evidence = np.array([(1, 1, sure), (0, 1, unsure)], np.float64)
    tuned = tune_confidence(evidence, 1.0)
    answers = [np.array([1 - share, share], np.float32) for share in (sure, unsure)]
    records = [chosen_record("label", answer, "ab", tuned) for answer in answers]
    assert [record["label"] for record in records] == ["b", None]
