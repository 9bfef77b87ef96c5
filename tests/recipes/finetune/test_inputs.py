from __future__ import annotations

from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.recipes.finetune.inputs import FilesRead, LabelledData, hash_of, overlap
from bertsmith.recipes.finetune.splitting import split
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.labels import check_labels, order_labels
from bertsmith.tasks.rank import RANK
from bertsmith.tasks.span import SPAN
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.config import Columns
from bertsmith.text.examples.formats.squad import Answer, Question
from bertsmith.text.examples.reading import Example, read_examples

TASK = CLASSIFY


def example(text: str, label: str) -> Example:
    return Example(text=text, text_pair=None, label=label, source="memory", line=1)


def test_labels_keep_a_known_order_or_are_sorted_by_value() -> None:
    assert order_labels(["b", "a", "b"], ("b", "a")) == ("b", "a")
    assert order_labels(["b", "a"], ("b", "a", "c")) == ("a", "b")
    assert order_labels(["10", "9", "-1"], ()) == ("-1", "9", "10")
    assert order_labels(["10", "9", "x"], ()) == ("10", "9", "x")
    # to Python 1_1 is the number 11
    assert order_labels(["1_1", "11", "2"], ()) == ("11", "1_1", "2")
    check_labels(["1_1", "11"] * 6, "codes.csv")


def test_identifiers_of_many_digits_are_not_one_number() -> None:
    check_labels(["1446110208093261825", "1446110208093261826"] * 6, "ids.csv")
    with pytest.raises(ExampleError, match="are one number written in two ways"):
        check_labels(["1446110208093261825", "01446110208093261825"] * 6, "ids.csv")


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


def test_copies_are_named_where_they_leave_too_few_to_hold_some_out() -> None:
    twice = [example(f"text {n % 50}", f"label {n % 50}") for n in range(100)]
    problem = "none of its 100 examples can be held out: only 50 are no copies, and no two of these"
    with pytest.raises(ExampleError, match=problem):
        split(TASK, twice, 0.1, seed=1)
    with pytest.raises(ExampleError, match="its 3 examples can be held out: they are copies of on"):
        split(TASK, [example("one", "a")] * 3, 0.1, seed=1)


def test_where_every_group_is_larger_than_the_share_the_smallest_is_held_out() -> None:
    """Four documents with 30, 20, 25 and 25 questions each: a tenth of them is 10."""
    rows = [
        Question(
            id=f"{name}{n}", question="q", context=name, answers=(Answer(name, 0),),
            impossible=False, plausible=(), title="", source="m", line=1,
        )
        for name, count in (("a", 30), ("b", 20), ("c", 25), ("d", 25))
        for n in range(count)
    ]  # fmt: skip
    kept, held_out = split(SPAN, rows, 0.1, seed=1)
    assert {row.context for row in held_out} == {"b"}
    assert len(held_out) == 20
    assert len(kept) == 80


def test_passages_to_be_measured_must_have_one_that_is_relevant() -> None:
    def passage(query: str, relevance: float) -> Example:
        return Example(
            text=query, text_pair="p", label=None, number=relevance, group=query, source="m", line=3
        )

    train = [passage("a", 1), passage("a", 0), passage("b", 2)]
    labels = RANK.labels
    labels.check(train, train, labels.names(train, ()))
    dev, message = [passage("c", 0), passage("c", 0)], "m: none of 2 passages is relevant"
    with pytest.raises(ExampleError, match=message):
        labels.check(train, dev, ("relevance",))
    with pytest.raises(ExampleError, match=message):
        RANK.measuring.evidence(dev, [0.5, 0.25], ("relevance",))
    with pytest.raises(ExampleError, match="m: none of 1 passage is relevant"):
        labels.check(train, dev[:1], ("relevance",))


def test_a_file_of_a_class_may_have_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    # a run records the hash of its folder of classes
    hashes = []
    for name in ("caf\udce9.txt", "caf\udce8.txt"):
        text = tmp_path / name / "good" / name
        text.parent.mkdir(parents=True)
        text.write_text("a good film", encoding="utf-8")
        hashes.append(hash_of(tmp_path / name))
    assert hashes[0] != hashes[1]


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """A folder of two classes, of which one is a link to a folder elsewhere."""
    for name in ("data/good", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "1.txt").write_text(f"a film of {name}", encoding="utf-8")
    (tmp_path / "data" / "bad").symlink_to(tmp_path / "elsewhere")
    return tmp_path / "data"


def test_what_is_not_read_of_a_folder_of_classes_does_not_change_it(classes: Path) -> None:
    """A run could not be resumed: its bad rows are written there, and desktops hide files there."""
    (classes / "good" / "2.txt").write_bytes(b"a gr\xe9at film")
    before = hash_of(classes)
    for _ in range(2):
        files, bad = FilesRead.of(classes), BadRows("quarantine")
        examples = read_examples(classes, Columns(encoding="utf-8"), need_label=True, bad=bad)
        assert len(list(examples)) == 2
        assert bad.files == [classes / "good" / "2.txt.bad.jsonl"]
        files.check()
        (classes / "good" / ".DS_Store").touch()
        assert hash_of(classes) == before


def test_texts_of_a_class_that_is_a_link_are_among_those_of_the_folder(classes: Path) -> None:
    before, files = hash_of(classes), FilesRead.of(classes)
    (classes / "bad" / "1.txt").write_text("another film", encoding="utf-8")
    assert hash_of(classes) != before
    with pytest.raises(ExampleError, match="changed while it was read"):
        files.check()


def test_the_hash_of_stories_counts_their_answers(tmp_path: Path) -> None:
    stories = tmp_path / "train.tsv"
    stories.write_text("s\tx\tTom sat.\tone: Who?\tTom\tAnn\tBob\tIda\n", encoding="utf-8")
    hashes = [hash_of(stories)]
    for letter in "AB":
        stories.with_suffix(".ans").write_text(f"{letter}\tA\tA\tA\n", encoding="utf-8")
        hashes.append(hash_of(stories))
    assert len(set(hashes)) == 3


def test_queries_that_are_in_train_too_are_told_apart_by_their_texts() -> None:
    """Queries that each file numbers from 1 were said to be in train; copies under others not."""

    def pair(number: str, query: str) -> Example:
        return Example(
            text=query, text_pair="p", label=None, number=1.0, group=number, source="m", line=1
        )

    train = [pair("1", "who sat"), pair("2", "who ran")]
    dev = [pair("1", "who fell"), pair("2", "who slept"), pair("9", "Who sat")]
    data = LabelledData(task=RANK, labels=RANK.labels.fixed, train=train, dev=dev, dev_is_cut=False)
    assert overlap(data) == 1
