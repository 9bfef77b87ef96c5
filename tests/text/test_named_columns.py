"""Columns and headers that the user states for questions, options and tags: read, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.recipes.predict.texts import Texts
from bertsmith.text.config import Columns
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.formats.choices import read_choices
from bertsmith.text.examples.formats.conll import read_tagged
from bertsmith.text.examples.formats.squad import read_questions
from bertsmith.text.examples.reading import read_examples

QUIZ = "nr,body,question,A,B,C,right,answer\n1,Ann is in Rome.,Where?,Oslo,Rome,Bonn,B,A\n"
ANSWER = json.dumps({"text": ["Rome"], "answer_start": [10]}).replace('"', '""')
ASKED = f'nr,body,asked,found\n7,Ann is in Rome.,Where is Ann?,"{ANSWER}"\n'


@pytest.mark.parametrize(
    ("columns", "text", "label"),
    [
        (Columns(), "Where?", 0),
        (Columns(text="body", label="right"), "Ann is in Rome. Where?", 1),
        (Columns(text="body", text_pair="nr", label="6"), "Ann is in Rome. 1", 1),
        (Columns(text="question", header="yes"), "Where?", 0),
    ],
)
def test_columns_of_options(tmp_path: Path, columns: Columns, text: str, label: int) -> None:
    path = tmp_path / "a.csv"
    path.write_text(QUIZ)
    assert recognise(path, columns).task == "choice"
    (found,) = read_choices(path, columns, need_label=True)
    assert (found.text, found.choices, found.label) == (text, ("Oslo", "Rome", "Bonn"), label)


def test_columns_of_questions(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ASKED)
    columns = Columns(text="body", text_pair="asked", label="found", id="0")
    (found,) = read_questions(path, need_answers=True, columns=columns)
    assert (found.id, found.question, found.context) == ("7", "Where is Ann?", "Ann is in Rome.")
    assert [tuple(answer) for answer in found.answers] == [("Rome", 10)]


def test_a_named_context_tells_the_task(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ASKED.replace("asked,found", "question,answers"))
    assert recognise(path, Columns(text="body")).reason == "it has 'question', 'body' and 'answers'"


@pytest.mark.parametrize("tokens", [True, False])
def test_keys_of_tags(tmp_path: Path, *, tokens: bool) -> None:
    path = tmp_path / "a.jsonl"
    body: object = ["Ann", "runs"] if tokens else "Ann runs"
    marks: object = ["B-PER", "O"] if tokens else [[0, 3, "PER"]]
    path.write_text(json.dumps({"tokens": ["x"], "tags": ["O"], "body": body, "marks": marks}))
    columns = Columns(text="body", label="marks")
    (found,) = read_tagged(path, need_tags=True, table=columns)
    assert (found.text, found.tags) == ("Ann runs", ("B-PER", "O"))


COPA = (
    '<c><item id="1" asks-for="cause" most-plausible-alternative="1"><p>x</p><a1>y</a1>'
    "<a2>z</a2></item></c>"
)
SQUAD = json.dumps(
    {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": "Ann",
                        "qas": [
                            {
                                "id": "1",
                                "question": "Who?",
                                "answers": [{"text": "Ann", "answer_start": 0}],
                            }
                        ],
                    }
                ]
            }
        ]
    }
)
READERS: dict[str, Callable[[Path, Columns], Iterable[object]]] = {
    "choice": lambda path, columns: read_choices(path, columns, need_label=True),
    "span": lambda path, columns: read_questions(path, need_answers=True, columns=columns),
    "tag": lambda path, columns: read_tagged(path, need_tags=True, table=columns),
    "class": lambda path, columns: read_examples(path, columns, need_label=True),
    "lines": lambda path, columns: Texts(str(path), columns),
}
FIRST = Columns(layout="label-first")


@pytest.mark.parametrize(
    ("reader", "name", "content", "columns", "message"),
    [
        ("choice", "a.csv", QUIZ, Columns(group="nr"), "group-column does not apply to multi"),
        ("choice", "a.xml", COPA, Columns(label="x"), "--label-column does not apply to COPA's"),
        ("choice", "a.jsonl", '{"question": "x", "choices": ["y", "z"], "label": "A"}',
         Columns(header="no"), "--header no does not apply to JSON"),
        ("span", "a.csv", ASKED, Columns(labels=("found",)), "--label-columns does not apply to"),
        ("span", "a.json", SQUAD, Columns(text="context"), "--text-column does not apply to SQuAD"),
        ("tag", "a.conll", "Ann B-PER\n", Columns(text="0"), "--tags.word and --tags.tag name"),
        ("tag", "a.txt", "Ann_N ran_V\n" * 3, Columns(header="yes"), "--header does not apply to"),
        ("tag", "a.jsonl", '{"text": "Ann", "entities": []}', Columns(text_pair="x"),
         "--text-pair-column does not apply to tags in JSON and Parquet; omit it; --text-column, "),
        ("class", "a.txt", "__label__a x\n", Columns(text="1"), "does not apply to fastText's li"),
        ("class", "a.label", "a x\n", Columns(label="0"), "to lines that begin with their label"),
        ("class", "a.xml", "<pair/>", Columns(text="t"), "text-column does not apply to pairs in"),
        ("class", "a.jsonl", '{"text": "x", "label": "y"}', Columns(header="no"), "--header no do"),
        ("class", "a.label", "a x\n", Columns(group="x"), "group-column does not apply to lines"),
        ("lines", "a.txt", "x\n", Columns(text="t"), "--text-column does not apply to lines of te"),
        ("class", "a.txt", "__label__a x\n", FIRST, "--layout does not apply to fastText's lines"),
        ("class", "a.xml", "<pair/>", FIRST, "--layout does not apply to pairs in XML; omit it"),
        ("span", "a.json", SQUAD, FIRST, "--layout does not apply to SQuAD's JSON; omit it"),
        ("choice", "a.csv", QUIZ, FIRST, "--layout does not apply to multiple choice; omit it"),
        ("tag", "a.conll", "Ann B-PER\n", FIRST, "--layout does not apply to columns of words"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_refused_by_name(
    tmp_path: Path, reader: str, name: str, content: str, columns: Columns, message: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        list(READERS[reader](path, columns))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_rows_are_grouped_by_a_column_that_is_read_too(tmp_path: Path) -> None:
    """Of a pair whose first text was named as group only the second was read."""
    path = tmp_path / "a.csv"
    path.write_text("question,sentence,label\nwho,she,yes\n", encoding="utf-8")
    (row,) = read_examples(path, Columns(group="question"), need_label=True)
    assert (row.text, row.text_pair, row.group) == ("who", "she", "who")


@pytest.mark.parametrize("role", ["group", "id"])
def test_a_column_of_lists_is_refused_under_the_name_of_its_role(tmp_path: Path, role: str) -> None:
    """The label was blamed, and another column of labels asked for."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x", "label": "y", "z": ["a"]}', encoding="utf-8")
    message = rf"the {role} is neither string nor number; name another column with --{role}-column"
    with pytest.raises(ExampleError, match=message):
        list(read_examples(path, Columns().override(**{role: "z"}), need_label=True))


def test_a_stated_header_is_refused_before_a_task_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x", "label": "y"}')
    with pytest.raises(ConfigError, match=r"has a name; omit it$"):
        recognise(path, Columns(header="no"))


@pytest.mark.parametrize("columns", [Columns(), Columns(header="no")])
def test_options_without_header(tmp_path: Path, columns: Columns) -> None:
    path = tmp_path / "a.csv"
    rows = [f"Where is number {n}?,{n} Oslo,{n} Rome,{n} Bonn,{'ABC'[n % 3]}" for n in range(20)]
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(ExampleError, match=r"a\.csv:1: .*header.*question,A,B,C,D,label"):
        list(read_choices(path, columns, need_label=True))
    remedy = "if it holds questions with options, add a header, such as question,A,B,C"
    with pytest.raises(ExampleError, match=rf"a\.csv:1: .*; {remedy}"):
        recognise(path, columns)


def test_questions_without_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    row = ASKED.splitlines()[1]
    path.write_text(f"{row}\n{row.replace('7,', '8,')}\n")
    with pytest.raises(ExampleError, match=r"a\.csv:1: .* need a header.*id,question,context"):
        list(read_questions(path, need_answers=True))


def test_two_columns_of_letters_are_no_options(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("A\tB\tlabel\n" + "Ann ran.\tShe ran.\tyes\nBob sat.\tHe left.\tno\n" * 5)
    assert recognise(path, Columns(text="A", text_pair="B")).task == "pair"


def test_one_column_for_two_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(QUIZ)
    with pytest.raises(ExampleError, match="the column 'A' is named for text and an option"):
        list(read_choices(path, Columns(text="A"), need_label=True))
    path.write_text(ASKED)
    columns = Columns(text="body", text_pair="body", label="found")
    with pytest.raises(ExampleError, match="'body' is named for two parts of a question"):
        list(read_questions(path, need_answers=True, columns=columns))
