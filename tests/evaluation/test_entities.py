from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bertsmith.evaluation.spans import EntityScores, macro_f1, score_entities, scores_by_type
from bertsmith.text.examples.tagged import entity_spans, names_entities
from bounds import metric

# in `make faults` ten times as many
many = pytest.mark.parametrize("count", [150, pytest.param(1500, marks=pytest.mark.faults)])
Columns = tuple[Any, Any, Any, Any]


def sentences(number: int, prefixes: str) -> tuple[list[list[str]], list[list[str]]]:
    """Tags with and without sense, of few types; predictions alike, the same, or one tag."""
    random = np.random.default_rng(number)
    types = ["PER", "LOC", "MISC-A"][: int(random.integers(1, 4))]

    def tag() -> str:
        letter = str(random.choice(list(prefixes)))
        return "O" if letter == "O" else f"{letter}-{random.choice(types)}"

    lengths = [int(random.integers(1, 12)) for _ in range(int(random.integers(1, 5)))]
    true = [[tag() for _ in range(length)] for length in lengths]
    same = random.choice([0.0, 0.5, 0.9, 1.0])
    predicted = [[item if random.random() < same else tag() for item in row] for row in true]
    if number % 10 == 0:
        predicted = [["O"] * len(row) for row in true]
    if number % 15 == 0:
        true = [["O"] * len(row) for row in true]
    return true, predicted


def by_definition(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Entities by conlleval's definition, told of whole stretches and not tag after tag.

    A stretch is an entity when all its tags are of a type, nothing within begins anew, and neither
    side could be added to it.
    """

    def joins(left: str, right: str) -> bool:
        """Whether two neighbours are of one entity."""
        if "O" in (left, right) or left[1:] != right[1:]:
            return False
        return left[0] in "BI" and right[0] in "IE"

    found = set()
    for start in range(len(tags)):
        for end in range(start + 1, len(tags) + 1):
            stretch = tags[start:end]
            whole = "O" not in stretch and all(joins(*two) for two in pairwise(stretch))
            open_left = start > 0 and joins(tags[start - 1], tags[start])
            open_right = end < len(tags) and joins(tags[end - 1], tags[end])
            if whole and not open_left and not open_right:
                found.add((start, end, stretch[0][2:]))
    return found


def scores_of(true: list[list[str]], predicted: list[list[str]]) -> dict[str, EntityScores]:
    """The scores by type, and over all types under an empty name."""
    sides = [[list(entity_spans(tags)) for tags in side] for side in (true, predicted)]
    return {"": score_entities(*sides)} | scores_by_type(*sides)


def shares(scores: EntityScores) -> tuple[float, float, float]:
    return scores.precision, scores.recall, scores.f1


@many
@pytest.mark.parametrize("prefixes", ["BIO", "BIOES"])
def test_entities_of_random_tags_are_those_of_the_definition(prefixes: str, count: int) -> None:
    for number in range(count):
        for tags in sentences(number, prefixes)[0]:
            assert set(entity_spans(tags)) == by_definition(tags), tags


@many
@pytest.mark.parametrize("prefixes", ["BIO", "BIOES", "IOE"])
def test_scores_of_random_tags_equal_those_of_seqeval(prefixes: str, count: int) -> None:
    lenient = pytest.importorskip("seqeval.metrics.sequence_labeling")
    for number in range(count):
        true, predicted = sentences(number, prefixes)
        given = {"y_true": true, "y_pred": predicted, "zero_division": 0}
        _equal(
            scores_of(true, predicted), partial(lenient.precision_recall_fscore_support, **given)
        )


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["O", "I-A", "I-A"], [(1, 3, "A")]),
        (["B-A", "I-B", "I-B"], [(0, 1, "A"), (1, 3, "B")]),
        (["B-A", "B-A", "I-A"], [(0, 1, "A"), (1, 3, "A")]),
        (["B-A", "I-A", "E-A", "S-A", "I-A"], [(0, 3, "A"), (3, 4, "A"), (4, 5, "A")]),
        (["B-A", "L-A", "U-A", "O"], [(0, 2, "A"), (2, 3, "A")]),
        (["B-A", "M-A", "E-A", "W-A"], [(0, 3, "A"), (3, 4, "A")]),
        (["B-work-of-art", "I-work-of-art"], [(0, 2, "work-of-art")]),
        (["B", "I", "O", "I"], [(0, 2, ""), (3, 4, "")]),
        (["O", "O"], []),
        (["X", "[CLS]", "BI-A", "O"], []),
        ([], []),
    ],
)
def test_entities_of_awkward_tags(tags: list[str], expected: list[tuple[int, int, str]]) -> None:
    assert list(entity_spans(tags)) == expected
    get_entities = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    # it knows neither L, U, M and W nor bare tags, whose type it calls _
    letters = str.maketrans("LUMW", "ESIS")
    plainer = [tag[:1].translate(letters) + tag[1:] for tag in tags if tag[:2] != "BI"]
    if "X" not in tags:
        found = [(begin, end + 1, kind) for kind, begin, end in get_entities(plainer)]
        assert found == [(begin, end, kind or "_") for begin, end, kind in expected]


def test_nothing_to_score() -> None:
    assert shares(score_entities([], [])) == (0.0, 0.0, 0.0)
    assert scores_by_type([[], []], [[], []]) == {}
    assert macro_f1({}) == 0.0


def _equal(found: dict[str, EntityScores], counted: Callable[..., Columns]) -> None:
    every = found.pop("")
    if not found:
        # its averages cannot do without any entity
        assert shares(every) == (0.0, 0.0, 0.0)
        return
    with warnings.catch_warnings():
        # it warns where there is nothing to divide by; its value is asked for all the same
        warnings.simplefilter("ignore")
        micro, columns = counted(average="micro"), counted(average=None)
    assert shares(every) == metric(tuple(map(float, micro[:3])))
    assert every.true == micro[3]
    assert macro_f1(found) == metric(float(np.mean(columns[2])))
    assert list(found) == sorted(found)
    for result, *expected, support in zip(found.values(), *columns, strict=True):
        assert shares(result) == metric(tuple(map(float, expected)))
        assert result.true == support


def test_an_entity_belongs_to_its_text() -> None:
    scores = score_entities(
        [{(0, 4, "PER")}, {(2, 9, "LOC")}], [{(0, 4, "PER"), (5, 6, "X")}, set()]
    )
    assert (scores.true, scores.found, scores.right) == (2, 2, 1)
    assert score_entities([{(0, 4, "PER")}, set()], [set(), {(0, 4, "PER")}]).right == 0


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("O", "B-PER"), True),
        (("I-PER", "O"), True),
        (("O", "S-PER", "X", "B-PER"), True),
        (("O", "S-PER"), True),
        (("B", "I", "O"), True),
        (("NN", "VB"), False),
        (("LABEL_0", "LABEL_1"), False),
    ],
)
def test_which_tags_name_entities(labels: tuple[str, ...], expected: bool) -> None:
    assert names_entities(labels) is expected
