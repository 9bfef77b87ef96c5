"""Labels of multiple choice: letters, or numbers from 0 or from 1; options in columns A, B, C."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.text.config import Columns
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.formats.choices import describe_choices, read_choices

HEAD = "question\tA\tB\tC\tlabel\n"


def write(path: Path, *labels: str) -> Path:
    rows = [f"q{n}\tx\ty\tz\t{label}\n" for n, label in enumerate(labels)]
    path.write_text(HEAD + "".join(rows))
    return path


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("ABC", [0, 1, 2]),
        ("bca", [1, 2, 0]),
        ("012", [0, 1, 2]),
        ("1210", [1, 2, 1, 0]),
        ("123", [0, 1, 2]),
        ("33", [2, 2]),
        ("zxy", [2, 0, 1]),
        ("1C", None),
        ("1212", None),
    ],
)
def test_what_labels_count_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], labels: str, expected: list[int] | None
) -> None:
    path = write(tmp_path / "a.tsv", *labels)
    assert recognise(path).task == "choice"
    if expected is None:
        match = r"a\.tsv:2: the labels may count from 0 or from 1: .*--label-start 0 or"
        with pytest.raises(ExampleError, match=match):
            list(read_choices(path, need_label=True))
        columns = Columns(label_start="1")
        assert next(read_choices(path, columns, need_label=True)).label == 0
        return
    assert [read_choice.label for read_choice in read_choices(path, need_label=True)] == expected
    assert ("labels count from 1" in capsys.readouterr().err) == ("3" in labels)
    assert ("labels count from 1" in describe_choices(path, Columns())) == ("3" in labels)


def test_a_number_out_of_range(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "0", "3")
    with pytest.raises(ExampleError, match=r"a\.tsv:3: the label is '3', .*numbers are 0 to 2"):
        list(read_choices(path, need_label=True))


def test_texts_and_names_of_options_say_nothing_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    named = '{"question": "q", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "label": "2"}'
    path.write_text(f'{named}\n{{"question": "r", "choices": ["7", "9"], "label": 9}}\n')
    assert [read_choice.label for read_choice in read_choices(path, need_label=True)] == [1, 1]


@pytest.mark.parametrize(
    ("names", "label", "expected"),
    [
        ([3, 1, 2], 3, 0),
        ([3.0, 1.0, 2.0], "2", 2),
        (["C", "A", "B"], "c", 0),
        (["A", "B", "D"], "d", 2),
        (["A", "B", "D"], "C", None),
        # marks of right and wrong
        ([0, 1, 0], 0, 0),
    ],
)
def test_options_in_any_order_have_their_own_names(
    tmp_path: Path, names: list[object], label: object, expected: int | None
) -> None:
    options = [{"text": f"option {name}", "label": name} for name in names]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": "q", "choices": options, "answerKey": label}) + "\n")
    if expected is None:
        with pytest.raises(ExampleError, match="the label is 'C', but there are 3 options"):
            list(read_choices(path, need_label=True))
        return
    (choice,) = read_choices(path, need_label=True)
    assert choice.label == expected


@pytest.mark.parametrize(
    ("names", "labels"), [("ending0,ending1,ending2", "112"), ("option_a,option_b,option_c", "312")]
)
def test_names_of_options(tmp_path: Path, names: str, labels: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"question,{names},label\n" + "".join(f"q,x,y,z,{n}\n" for n in labels))
    first = next(read_choices(path, need_label=True))
    assert (first.choices, first.label) == (("x", "y", "z"), 1 if "0" in names else 2)


@pytest.mark.parametrize(
    ("options", "labels", "expected"),
    [
        # the text of the first option of one row is the number of the third, or second
        (("2\t4\t6", "1\t3\t5"), "23", None),
        (("1\t2\t3", "5\t1\t9"), "31", None),
        # the fourth option, if there were one
        (("1\t2\t3", "2\t4\t6"), "24", [1, 1]),
        # one by one, numbers from 0 or from 1 say what texts do
        (("0\t1\t2", "7\t1\t6"), "21", [2, 1]),
        (("1\t2\t3", "1\t2\t7"), "32", [2, 1]),
        # some are no texts, so all are numbers
        (("1\t2\t3", "7\t8\t9"), "20", [2, 0]),
        # no number of an option is as high
        (("4\t5\t6", "7\t8\t9"), "57", [1, 0]),
    ],
)
def test_options_that_are_numbers_may_be_meant_by_their_text(
    tmp_path: Path, options: tuple[str, str], labels: str, expected: list[int] | None
) -> None:
    path = tmp_path / "a.tsv"
    rows = (f"q\t{texts}\t{label}\n" for texts, label in zip(options, labels, strict=True))
    path.write_text(HEAD + "".join(rows), encoding="utf-8")
    if expected is None:
        with pytest.raises(ExampleError, match="the text of an option or the number of another"):
            list(read_choices(path, need_label=True))
        assert [row.label for row in read_choices(path, need_label=False)]
        stated = Columns(label_start="0")
        assert len(list(read_choices(path, stated, need_label=True))) == 2
        return
    assert [choice.label for choice in read_choices(path, need_label=True)] == expected


def test_labels_that_are_not_needed_are_no_fault(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "1", "2", "3")
    found = read_choices(path, need_label=False)
    assert [result.label for result in found] == [0, 1, 2]
    path = write(tmp_path / "a.tsv", "1", "2")
    assert len(list(read_choices(path, need_label=False))) == 2
    path = write(tmp_path / "a.tsv", "?", "D", "A")
    found = read_choices(path, need_label=False)
    assert [result.label for result in found] == [None, None, 0]


@pytest.mark.parametrize("label", ["b", "B"])
def test_a_letter_that_is_the_text_of_another_option_is_refused(tmp_path: Path, label: str) -> None:
    """It was taken for the letter: of the options B and A, the right one B for A."""
    path = tmp_path / "a.jsonl"
    rows: list[dict[str, Any]] = [{"question": "q", "choices": ["x", "y"], "answer": "A"}]
    rows.append({"question": "q", "choices": [label, "z"], "answer": label})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    match = rf"a\.jsonl:2: the label '{label}' is the letter of option 1 and the text of 0"
    with pytest.raises(ExampleError, match=match):
        list(read_choices(path, need_label=True))
    # what is called by a letter is meant by it
    rows[1]["choices"] = {"A": label, "B": "z"}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert [row.label for row in read_choices(path, need_label=True)] == [0, 1]
    for head in ("question,A,B,label", "question,option_a,option_b,label"):
        table = tmp_path / "a.csv"
        table.write_text(f"{head}\nq,x,y,A\nq,{label},z,{label}\n", encoding="utf-8")
        assert [row.label for row in read_choices(table, need_label=True)] == [0, 1]
    table.write_text(f"question,option1,option2,label\nq,{label},z,{label}\n", encoding="utf-8")
    with pytest.raises(ExampleError, match="is the letter of option 1 and the text of 0"):
        list(read_choices(table, need_label=True))


def test_a_sharp_s_is_an_option_and_no_letter_of_one(tmp_path: Path) -> None:
    """Its capital is two letters, as in exercises of spelling: ss or ß."""
    path = tmp_path / "a.jsonl"
    rows = [{"question": "Stra?e", "choices": ["ss", "ß"], "label": label} for label in ("ß", "ŉ")]
    path.write_text("\n".join(map(json.dumps, rows)))
    read = read_choices(path, need_label=True)
    assert next(read).label == 1
    with pytest.raises(ExampleError, match=r"a\.jsonl:2: the label is 'ŉ', but there are 2 opt"):
        next(read)
