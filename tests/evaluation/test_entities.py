from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bertsmith.evaluation.entities import (
    EntityScores,
    TypeScores,
    conll_scores,
    span_scores,
    strict_scores,
)
from bounds import metric

CASES = 1000
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
    predicted = [[each if random.random() < same else tag() for each in row] for row in true]
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


def told(scores: TypeScores) -> tuple[float, float, float]:
    return scores.precision, scores.recall, scores.f1


@pytest.mark.parametrize("prefixes", ["BIO", "BIOES"])
def test_a_thousand_cases_equal_the_definition(prefixes: str) -> None:
    for number in range(CASES):
        true, predicted = sentences(number, prefixes)
        found = conll_scores(true, predicted)
        expected = span_scores(
            [by_definition(row) for row in true], [by_definition(row) for row in predicted]
        )
        assert found == expected, number


@pytest.mark.parametrize("prefixes", ["BIO", "BIOES"])
def test_a_thousand_cases_equal_those_of_seqeval(prefixes: str) -> None:
    lenient = pytest.importorskip("seqeval.metrics.sequence_labeling")
    strict = pytest.importorskip("seqeval.metrics.v1")
    scheme = pytest.importorskip("seqeval.scheme")
    rules = scheme.IOB2 if prefixes == "BIO" else scheme.IOBES
    for number in range(CASES):
        true, predicted = sentences(number, prefixes)
        given = {"y_true": true, "y_pred": predicted, "zero_division": 0}
        count = partial(lenient.precision_recall_fscore_support, **given)
        _equal(conll_scores(true, predicted), count)
        count = partial(strict.precision_recall_fscore_support, scheme=rules, **given)
        _equal(strict_scores(true, predicted, "bio2" if prefixes == "BIO" else "bioes"), count)


def _equal(found: EntityScores, counted: Callable[..., Columns]) -> None:
    if not found.by_type:
        # its averages cannot do without any entity
        assert told(found) == (0.0, 0.0, 0.0)
        return
    with warnings.catch_warnings():
        # it warns where there is nothing to divide by; its value is asked for all the same
        warnings.simplefilter("ignore")
        micro, columns = counted(average="micro"), counted(average=None)
    assert told(found) == metric(tuple(map(float, micro[:3])))
    assert found.macro_f1 == metric(float(np.mean(columns[2])))
    types = [found.by_type[name] for name in sorted(found.by_type)]
    for each, *expected, support in zip(types, *columns, strict=True):
        assert told(each) == metric(tuple(map(float, expected)))
        assert each.true == support


def test_bilou_is_bioes() -> None:
    true = [["B-A", "I-A", "L-A", "U-A", "O"]]
    assert told(conll_scores(true, [["B-A", "I-A", "E-A", "S-A", "O"]])) == (1.0, 1.0, 1.0)


def test_spans_of_characters() -> None:
    scores = span_scores([{(0, 4, "PER")}, {(2, 9, "LOC")}], [{(0, 4, "PER"), (5, 6, "X")}, set()])
    assert (scores.true, scores.found, scores.right) == (2, 2, 1)
    assert scores.by_type["LOC"].f1 == scores.by_type["X"].f1 == 0.0
    # the same place in another text is another entity
    assert span_scores([{(0, 4, "PER")}, set()], [set(), {(0, 4, "PER")}]).right == 0
