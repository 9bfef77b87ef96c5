from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertsmith.core.errors import BlankText
from bertsmith.text.config import Columns
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.formats.choices import Choice, read_choices

SWAG = """,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
7,1,"Ann sits, he","Ann sits, still.",He,gold,runs.,"walks, then runs.",sings.,falls.,2
"""


def read(path: Path) -> list[Choice]:
    return list(read_choices(path, Columns(label_start="0"), need_label=True))


def test_swag(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text(SWAG)
    (found,) = read(path)
    assert found == Choice(
        text="Ann sits, still.",
        choices=("He runs.", "He walks, then runs.", "He sings.", "He falls."),
        label=2,
        id=None,
        source=str(path),
        line=2,
    )


def test_copa_in_xml_and_in_json(tmp_path: Path) -> None:
    xml = tmp_path / "copa.xml"
    xml.write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE copa-corpus SYSTEM "copa.dtd">\n'
        "<copa-corpus>\n"
        '<item id="1" asks-for="cause" most-plausible-alternative="1">\n'
        "<p>Ann &amp; Bob  fell.</p>\n<a1>It froze.</a1><a2>It rained.</a2>\n</item>\n"
        '<item id="2" asks-for="effect" most-plausible-alternative="3"><p>It froze.</p>'
        "<a1>a</a1><a3>c</a3><a2>b</a2></item></copa-corpus>"
    )
    first, second = read(xml)
    assert first.text == "Ann & Bob fell. What was the cause of this?"
    assert (first.choices, first.label, first.id, first.line) == (
        ("It froze.", "It rained."),
        0,
        "1",
        4,
    )
    assert second.text == "It froze. What happened as a result?"
    assert (second.choices, second.label, second.line) == (("a", "b", "c"), 2, 8)
    lines = tmp_path / "copa.jsonl"
    row = {"premise": "Ann & Bob fell.", "choice1": "It froze.", "choice2": "It rained."}
    lines.write_text(json.dumps(row | {"question": "cause", "label": 0, "idx": 1}))
    (again,) = read(lines)
    assert (again.text, again.choices, again.label, again.id) == (first.text, first.choices, 0, "1")


@pytest.mark.parametrize(
    ("row", "text", "choices", "label"),
    [
        ({"question": "q", "choices": ["x", "y", "z"], "label": 2}, "q", "xyz", 2),
        ({"question": "q", "options": ["x", "y"], "answer": "B"}, "q", "xy", 1),
        ({"article": "a", "question": "q", "options": ["x", "y"], "answer": "y"}, "a q", "xy", 1),
        (
            {
                "example_id": "race",
                "article": "a",
                "question": "q",
                "options": ["x", "y"],
                "label": 1,
            },
            *("a q", "xy", 1),
        ),
        ({"ctx": "c", "endings": ["x", "y"], "label": "1"}, "c", "xy", 1),
        ({"context": "c", "question": "", "choices": ["x", "y"], "label": 0.0}, "c", "xy", 0),
        (
            {
                "question": "q",
                "choices": {"text": ["x", "y"], "label": ["1", "2"]},
                "answerKey": "1",
            },
            *("q", "xy", 0),
        ),
        (
            {
                "question": {
                    "stem": "q",
                    "choices": [{"label": "D", "text": "x"}, {"label": "E", "text": "y"}],
                },
                "answerKey": "E",
            },
            *("q", "xy", 1),
        ),
        ({"question": "q", "answer_0": "x", "answer_1": "y", "label": 1}, "q", "xy", 1),
        ({"question": "q", "answerA": "x", "answerB": "y", "label": "0"}, "q", "xy", 0),
        ({"context": "c", "question": "q", "ans0": "x", "ans1": "y", "label": 1}, "c q", "xy", 1),
        ({"question": "q", "opa": "x", "opb": "y", "cop": 1, "exp": "e"}, "q", "xy", 1),
        ({"goal": "q", "sol1": "x", "sol2": "y", "label": 1}, "q", "xy", 1),
        (
            {"question_stem": "q", "choices": {"text": ["x", "y"], "label": ["A", "B"]}}
            | {"answerKey": "B"},
            *("q", "xy", 1),
        ),
        (
            {"question": "q", "options": {"A": "x", "B": "y", "C": None}, "answer_idx": "B"},
            *("q", "xy", 1),
        ),
    ],
)
def test_usual_layouts(
    tmp_path: Path, row: dict[str, object], text: str, choices: str, label: int
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row))
    (found,) = read(path)
    assert (found.text, found.choices, found.label) == (text, tuple(choices), label)
    assert recognise(path).task == "choice"


def test_options_differ_in_number_and_labels_may_be_unknown(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"question": "q", "choices": ["x"] * n, "label": None} for n in (2, 5, 40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = list(read_choices(path, need_label=False))
    assert [(len(result.choices), result.label) for result in found] == [
        (2, None),
        (5, None),
        (40, None),
    ]


def test_items_within_items(tmp_path: Path) -> None:
    path = tmp_path / "copa.xml"
    item = '<item most-plausible-alternative="1"><p>x</p><a1>y</a1><a2>z</a2></item>'
    path.write_text(f"<copa>\n<item><p>It\n{item}rains.</p></item>\n{item}</copa>\n")
    assert [entry.line for entry in read(path)] == [3, 4]


def test_a_table_may_have_rows_of_fewer_options(tmp_path: Path) -> None:
    """Their last cells are empty; one that is empty before another is a mistake."""
    path = tmp_path / "a.csv"
    path.write_text("question,A,B,C,D,label\nq,w,x,y,z,4\nr,x,y,z,,3\ns,x,y,,,1\n", "utf-8")
    found = [(choice.choices, choice.label) for choice in read_choices(path, need_label=True)]
    assert found == [(("w", "x", "y", "z"), 3), (("x", "y", "z"), 2), (("x", "y"), 0)]
    lists = tmp_path / "a.jsonl"
    # as Parquet and pandas fill lists of one length
    lists.write_text('{"question": "q", "choices": ["x", "y", null, ""], "label": "B"}\n', "utf-8")
    (choice,) = read_choices(lists, need_label=True)
    assert (choice.choices, choice.label) == (("x", "y"), 1)
    for cells in ("x,,z,", "x,,,"):
        path.write_text(f"question,A,B,C,D,label\nq,{cells},A\n", encoding="utf-8")
        with pytest.raises(BlankText, match="the option 1 is empty"):
            list(read_choices(path, need_label=True))
