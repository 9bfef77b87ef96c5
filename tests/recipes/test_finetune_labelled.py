from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from bertsmith.errors import ExampleError
from bertsmith.recipes.labelled import split
from bertsmith.recipes.tasks.classify import Classify
from bertsmith.recipes.tasks.whole_texts import order_labels
from bertsmith.text.examples import Example

TASK = Classify()


def example(text: str, label: str) -> Example:
    return Example(text=text, text_pair=None, label=label, source="memory", line=1)


def test_labels_keep_a_known_order_or_are_sorted_by_value() -> None:
    assert order_labels(["b", "a", "b"], ("b", "a")) == ("b", "a")
    assert order_labels(["b", "a"], ("b", "a", "c")) == ("a", "b")
    assert order_labels(["10", "9", "-1"], ()) == ("-1", "9", "10")
    assert order_labels(["10", "9", "x"], ()) == ("10", "9", "x")


def test_a_label_that_is_no_finite_number_has_one_place_among_the_others() -> None:
    # nan is neither less nor more than a number: sorted by value, the order would be the set's
    for found in permutations(("10", "9", "nan")):
        assert order_labels(found, ()) == ("10", "9", "nan")
    assert order_labels(("10", "9", "inf"), ()) == ("10", "9", "inf")


def test_a_share_of_every_class_is_held_out_the_same_each_time() -> None:
    examples = [example(f"text {n}", "abbccc"[n % 6]) for n in range(600)]
    kept, held_out = split(TASK, examples, 0.1, seed=3)
    assert Counter(e.label for e in held_out) == {"a": 10, "b": 20, "c": 30}
    assert sorted(e.text for e in kept + held_out) == sorted(e.text for e in examples)
    assert held_out == split(TASK, examples, 0.1, seed=3)[1]
    assert held_out != split(TASK, examples, 0.1, seed=4)[1]


def test_small_classes_are_rounded_together_and_never_held_out_whole() -> None:
    examples = [example(f"text {n}", f"class {n // 4}") for n in range(100)]
    kept, held_out = split(TASK, examples, 0.1, seed=1)
    assert len(held_out) == 10
    assert len({e.label for e in kept}) == 25
    few = [example("one", "a"), example("two", "b"), example("six", "b")]
    kept, held_out = split(TASK, few, 0.5, 1)
    assert {e.label for e in kept} == {"a", "b"}
    assert [e.label for e in held_out] == ["b"]


def test_copies_of_a_text_stay_on_one_side() -> None:
    examples = [example(f"text {n % 40}", "ab"[n % 2]) for n in range(400)]
    kept, held_out = split(TASK, examples, 0.25, seed=1)
    assert not {e.text for e in kept} & {e.text for e in held_out}
    assert len(held_out) == 100


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(ExampleError, match="memory: has too few examples"):
        split(TASK, [example("one", "a"), example("two", "b")], 0.1, seed=1)
