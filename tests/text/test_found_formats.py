"""Examples in files that people have: JSON lists, fastText lines, XML pairs, SQuAD in CSV."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

import pytest

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.recipes.predict.texts import Texts
from bertsmith.tasks.config import Reading
from bertsmith.tasks.tag import TAG
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.config import Columns, TagColumns
from bertsmith.text.corpus.files import Corpus
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.formats.choices import read_choices
from bertsmith.text.examples.formats.conll import joining_sign, read_tagged
from bertsmith.text.examples.formats.squad import read_questions
from bertsmith.text.examples.reading import read_examples
from bertsmith.text.structured import literal

ROWS = [{"text": "Good film", "label": "pos"}, {"text": "Bad film", "label": "neg"}]
CONTEXT = "Ann is in Rome. Bob is in Oslo."


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS, indent=1),
        json.dumps({"version": 1, "data": ROWS, "more": []}),
        json.dumps({"examples": ROWS}),
        "\n".join(map(json.dumps, ROWS)),
        "\ufeff" + json.dumps(ROWS),
    ],
)
def test_a_list_of_records(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    assert recognise(path).task == "classify"
    found = list(read_examples(path, need_label=True))
    assert [(result.text, result.label) for result in found] == [
        ("Good film", "pos"),
        ("Bad film", "neg"),
    ]
    assert [item.paragraphs for item in Corpus([path])] == [("Good film",), ("Bad film",)]


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ('[{"text": "x", "label": "a"},\n {"text": "y"', "not JSON: Expecting ',' delimiter", 2),
        ('[{"text": "x", "label": "a"}\n {"text": "y"}]', "not JSON: Expecting ',' delimiter", 2),
        ('[{"text": "x", "label": "a"},\n 7]', "a number, not a JSON object", 2),
        ('[{"text": "x", "label": "a"}] x', "not JSON: Extra data", 1),
        ('{"text": {"0": "x"}, "label": {"0": "a"}}', "the text is not a string", 1),
    ],
)
def test_a_bad_list_of_records(tmp_path: Path, text: str, what: str, line: int) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ExampleError) as caught:
        list(read_examples(path, need_label=True))
    assert what in caught.value.problem
    assert (caught.value.line, caught.value.where) == (line, path)
    assert caught.value.remedy


def test_fasttext(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("__label__2 Great sound\n\n__label__1\tBroken, sadly\n", encoding="utf-8")
    assert recognise(path).task == "classify"
    found = list(read_examples(path, need_label=True))
    assert [(result.label, result.text, result.line) for result in found] == [
        ("2", "Great sound", 1),
        ("1", "Broken, sadly", 3),
    ]
    assert [Text.text for Text in Texts(str(path), Columns())] == ["Great sound", "Broken, sadly"]
    path.write_text("__label__a __label__b-c both\n__label__a one\n", encoding="utf-8")
    assert recognise(path).task == "multi-label"
    several = list(read_examples(path, need_label=True, kind="classes"))
    assert [item.labels for item in several] == [("a", "b-c"), ("a",)]
    with pytest.raises(ExampleError, match=r"txt:1: 2 labels instead of one; .*multi-label"):
        list(read_examples(path, need_label=True))
    path.write_text("__label__a one\nx __label__b two\n__label__c\n", encoding="utf-8")
    bad = BadRows("skip")
    assert len(list(read_examples(path, need_label=True, bad=bad))) == 1
    assert bad.count == 2
    assert bad.first is not None
    assert bad.first.problem == "a label within the text"


RTE = (
    '<?xml version="1.0"?>\n<corpus>\n<pair id="1" value="TRUE" task="IR">\n'
    "<t>Ann &amp; Bob met.</t>\n<h>They met.</h></pair>\n"
    '<pair id="2" entailment="NO"><t>Ann\nleft.</t><h>She came.</h></pair>\n</corpus>\n'
)


def test_pairs_in_xml(tmp_path: Path) -> None:
    path = tmp_path / "dev.xml"
    path.write_text(RTE, encoding="utf-8")
    assert recognise(path).task == "pair"
    found = list(read_examples(path, need_label=True))
    assert [
        (result.text, result.text_pair, result.label, result.id, result.line) for result in found
    ] == [
        ("Ann & Bob met.", "They met.", "TRUE", "1", 3),
        ("Ann left.", "She came.", "NO", "2", 6),
    ]
    path.write_text(RTE.replace(' value="TRUE"', ""), encoding="utf-8")
    with pytest.raises(ExampleError, match=r"dev\.xml:3: no label; give each <pair> an attribute"):
        list(read_examples(path, need_label=True))
    assert len(list(read_examples(path, need_label=False))) == 2
    path.write_text(RTE.replace("<h>", "<x>").replace("</h>", "</x>"), encoding="utf-8")
    with pytest.raises(ExampleError, match=r"dev\.xml:3: a <pair> without <t> and <h>"):
        list(read_examples(path, need_label=True))
    marked = RTE.replace("Bob met.", "<b>Bob</b> <i>m<u>e</u></i>t.").replace("She", "<b>S</b>he")
    path.write_text(marked, encoding="utf-8")
    assert list(read_examples(path, need_label=True)) == found
    path.write_text(RTE.replace("<h>They", "<t>Both</t><h>They"), encoding="utf-8")
    with pytest.raises(ExampleError, match=r"dev\.xml:3: a <pair> without <t> and <h>"):
        list(read_examples(path, need_label=True))


ANSWERS = [
    """{"text": ["Rome"], "answer_start": [10]}""",
    """{'text': ['Rome'], 'answer_start': [10]}""",
    """{'text': array(['Rome'], dtype=object), 'answer_start': array([10], dtype=int32)}""",
    """[{'text': 'Rome', 'answer_start': 10}]""",
]


def _csv(*rows: tuple[object, ...]) -> str:
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue()


@pytest.mark.parametrize("answers", ANSWERS)
def test_questions_in_a_csv(tmp_path: Path, answers: str) -> None:
    path = tmp_path / "a.csv"
    head = ("id", "title", "context", "question", "answers")
    none = "{'text': array([], dtype=object), 'answer_start': array([], dtype=int32)}"
    rows = [("q1", "", CONTEXT, "Where is Ann?", answers), ("q2", "", CONTEXT, "Why?", none)]
    path.write_text(_csv(head, *rows), encoding="utf-8")
    assert recognise(path).task == "span"
    first, second = read_questions(path, need_answers=True)
    assert (first.id, first.context, first.question) == ("q1", CONTEXT, "Where is Ann?")
    assert [tuple(answer) for answer in first.answers] == [("Rome", 10)]
    assert (second.answers, second.impossible) == ((), True)


@pytest.mark.parametrize(
    "names", [("answer_text", "answer_start"), ("answers.text", "answers.answer_start")]
)
def test_questions_with_columns_of_texts_and_starts(tmp_path: Path, names: tuple[str, str]) -> None:
    path = tmp_path / "a.csv"
    cells = ("['Rome']", "[10]") if "." in names[0] else ("Rome", "10")
    rows = [("question", "context", *names), ("Where is Ann?", CONTEXT, *cells)]
    path.write_text(_csv(*rows), encoding="utf-8")
    (found,) = read_questions(path, need_answers=True)
    assert [tuple(answer) for answer in found.answers] == [("Rome", 10)]
    assert found.id == "2"
    path = tmp_path / "a.json"
    record = {
        "id": 1,
        "question": "Where?",
        "context": CONTEXT,
        "answer_text": "Oslo",
        "answer_start": 26,
    }
    path.write_text(json.dumps([record]), encoding="utf-8")
    assert recognise(path).task == "span"
    (found,) = read_questions(path, need_answers=True)
    assert [tuple(answer) for answer in found.answers] == [("Oslo", 26)]


BARE = [
    ("answers", ".csv", "Rome"),
    ("answer", ".csv", "Rome"),
    ("answer", ".jsonl", "Rome "),
    ("answer_text", ".jsonl", ["Rome"]),
    ("answers", ".jsonl", ["Rome"]),
    ("answers", ".jsonl", {"text": ["Rome"]}),
    ("answers", ".json", [{"text": "Rome"}]),
]


@pytest.mark.parametrize(("name", "suffix", "answer"), BARE)
def test_answers_without_positions(tmp_path: Path, name: str, suffix: str, answer: object) -> None:
    path = tmp_path / f"a{suffix}"
    context = "Romeo is in Rome."
    rows: list[dict[str, object]] = [
        {"question": "Where?", "context": context, name: answer},
        {"question": "Why?", "context": context, name: [] if isinstance(answer, list) else ""},
    ]
    if suffix == ".csv":
        path.write_text(_csv(tuple(rows[0]), *(tuple(row.values()) for row in rows)))
    else:
        path.write_text(json.dumps(rows) if suffix == ".json" else "\n".join(map(json.dumps, rows)))
    assert recognise(path).task == "span"
    first, second = read_questions(path, need_answers=True)
    assert [tuple(item) for item in first.answers] == [("Rome", 12)]
    assert (second.answers, second.impossible) == ((), True)


def test_an_answer_that_does_not_occur_once_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    answers = ["Oslo", "Paris", "is in", "Rome", "1945"]
    rows = [("Where?", CONTEXT, answer) for answer in answers]
    path.write_text(_csv(("question", "context", "answer"), *rows), encoding="utf-8")
    reason = "it has 'question' and 'context', in which most texts of 'answer' occur"
    assert recognise(path).reason == reason
    with pytest.raises(ExampleError, match=r"a\.csv:3: the answer 'Paris' is not in the context"):
        list(read_questions(path, need_answers=True))
    bad = BadRows("quarantine")
    found = list(read_questions(path, need_answers=True, bad=bad))
    assert [result.answers[0].text for result in found] == ["Oslo", "Rome"]
    told = (tmp_path / "a.csv.bad.jsonl").read_text(encoding="utf-8")
    assert "the answer 'is in' occurs 2 times in the context, and has no answer_start" in told
    assert "the answer '1945' is not in the context" in told
    # scores compare texts, so that the first of several serves
    measured = list(read_questions(path, need_answers=True, need_positions=False, bad=bad))
    assert [measurement.answers[0].text for measurement in measured] == ["Oslo", "is in", "Rome"]
    # nothing is learned from what is only to be answered
    assert len(list(read_questions(path, need_answers=False))) == len(answers)


def test_answers_that_are_classes_are_no_spans(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [(f"Is it {n}?", CONTEXT, "yes" if n % 2 else "no") for n in range(9)]
    path.write_text(_csv(("question", "passage", "answer"), *rows), encoding="utf-8")
    assert recognise(path).task != "span"


@pytest.mark.parametrize(
    "answers", ["['Rome'", "{'text': ['Rome']", "[[[[" * 99, "[__import__('os')]", ""]
)
def test_answers_that_cannot_be_read(tmp_path: Path, answers: str) -> None:
    path = tmp_path / "a.csv"
    head = ("id", "question", "context", "answers")
    path.write_text(_csv(head, ("1", "Where?", CONTEXT, answers or " ")), encoding="utf-8")
    with pytest.raises(ExampleError, match=r"a\.csv:2: 'answers' is not a list; write"):
        list(read_questions(path, need_answers=True))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("['a' 'b, c'\n \"d's\"]", ["a", "b, c", "d's"]),
        ("[1 2 -3.5e2]", [1, 2, -350.0]),
        ("('a', None, True, nan)", ["a", None, True, None]),
        ("array(['x'], dtype='<U3')", ["x"]),
        ("[np.str_('x'), np.int64(-3), np.float64(0.5), np.True_]", ["x", -3, 0.5, True]),
        (r"['it\'s', 'a\nb', 'caf\xe9']", ["it's", "a\nb", "caf\u00e9"]),
        ('{"a": [1]}', {"a": [1]}),
    ],
)
def test_literals(written: str, value: object) -> None:
    assert literal(written) == value


def test_blanks_after_a_value_of_an_array_are_read_in_time() -> None:
    began = time.process_time()
    assert literal(f"[array(1{' ' * 100_000})]") == [1]
    assert time.process_time() - began < 5  # what grew with the square would take minutes


@pytest.mark.parametrize(
    "written",
    ["", "x", "[", "['a'", "{'a' 1}", "{1: 2}", "f(1)", "[1] 2", "(" * 10_000, "'a", "1__0"],
)
def test_no_literals(written: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (any of its messages)
        literal(written)


def test_options_as_numpy_prints_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [("question", "choices", "answer"), ("Who?", "['Ann' 'Bob']", "B")]
    path.write_text(_csv(*rows), encoding="utf-8")
    (found,) = read_choices(path, need_label=True)
    assert (found.choices, found.label) == (("Ann", "Bob"), 1)


def test_source_code_a_folder_a_class(tmp_path: Path) -> None:
    for name, text in (("py/a.py", "def f():\n    return 1\n"), ("c/a.c", "int f() {\n}\n")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = {
        read_example.label: read_example.text
        for read_example in read_examples(tmp_path, need_label=True)
    }
    assert found == {"c": "int f() { }", "py": "def f(): return 1"}


@pytest.mark.parametrize("sign", ["_", "/"])
def test_words_joined_to_their_tags(tmp_path: Path, sign: str) -> None:
    path = tmp_path / "train.txt"
    text = "The/DT dog/NN of/IN Ann/NN ./.\n\nA/DT half/NN ,/, 1\\/2/NN ./.\nThe/DT cat/NN sat/NN\n"
    path.write_text(text if sign == "/" else text.replace("\\/", "~").replace("/", "_"))
    found = recognise(path)
    assert (found.task, found.reason) == ("tag", f"its lines are sentences of word{sign}TAG")
    first, second, third = read_tagged(path, need_tags=True)
    assert first.text == "The dog of Ann ."
    assert first.tags == ("DT", "NN", "IN", "NN", ".")
    assert second.text == ("A half , 1/2 ." if sign == "/" else "A half , 1~2 .")
    assert [item.line for item in (first, second, third)] == [1, 3, 4]
    path.write_text(path.read_text() * 20 + "The dog\n")
    with pytest.raises(
        ExampleError, match=rf"txt:81: the word 'The' has no tag; write word{sign}TAG"
    ):
        list(read_tagged(path, need_tags=True))


@pytest.mark.parametrize(
    "text", ["and/or it/is\n", "a/b c/d e/f g/h\n", "plain text here\n", "x_A\ny_A\n"]
)
def test_what_is_not_joined_to_tags(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    assert joining_sign(path, TagColumns(), "auto") is None


def test_a_stated_layout_of_joined_tags(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Ann|N\nBob|N ran|V\n")
    assert joining_sign(path, TagColumns(), "auto") is None
    joined = TagColumns(layout="joined", sign="|")
    assert recognise(path, Columns(), joined).task == "tag"
    for columns in (joined, TagColumns(sign="|")):
        rows = list(read_tagged(path, columns, need_tags=True))
        assert [(item.text, item.tags) for item in rows] == [
            ("Ann", ("N",)),
            ("Bob ran", ("N", "V")),
        ]
    with pytest.raises(ExampleError, match=r"a\.txt:1: no sign .* --tags\.sign '\|', or"):
        list(read_tagged(path, TagColumns(layout="joined"), need_tags=True))
    # every word has a tag of its own here, which is no evidence
    path.write_text("Ann_A ran_B off_C\n")
    (row,) = read_tagged(path, TagColumns(layout="joined"), need_tags=True)
    assert row.tags == ("A", "B", "C")


def test_a_stated_layout_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a/x N/n\nb/x N/n\n\nc/x N/n\n")
    assert joining_sign(path, TagColumns(), "auto") == "/"
    first, second = read_tagged(path, TagColumns(layout="columns"), need_tags=True)
    assert (first.text, first.tags, second.text) == ("a/x b/x", ("N/n", "N/n"), "c/x")
    with pytest.raises(ConfigError, match=r"tags\.sign is '/' of columns; give the sign of"):
        TagColumns(layout="columns", sign="/")


def test_the_layout_of_joined_tags_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Ann_N ran_V\n" * 5)
    assert TAG.reader.layout(path, Reading()) == "sentences of word_TAG: tags as they are"


def test_a_tag_that_keeps_others_from_being_entities_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("Ada B-PER\nsang O\n\nin O\nLondon _\n")
    assert TAG.reader.layout(path, Reading()).endswith(
        "tags as they are, since '_' is no tag of entities (--tags.scheme bio2 names its line)"
    )
    path.write_text("Ada NNP\nsang VBD\n")
    assert TAG.reader.layout(path, Reading()).endswith("tags as they are")
