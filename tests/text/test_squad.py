from __future__ import annotations

import csv
import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from bertsmith.core.errors import ExampleError
from bertsmith.tasks.span import SPAN
from bertsmith.text.examples.formats.squad import Answer, Question, read_questions

CONTEXT = "Ann  is in Rome.\nRome is  old \U0001f600 \u2014 Rome."


def write(folder: Path, questions: list[dict[str, object]], **more: object) -> Path:
    paragraphs = [{"qas": questions, "context": CONTEXT}, {"context": "x", "qas": []}]
    data = {"data": [{"title": "Ann", "paragraphs": paragraphs}], "version": "v2.0"} | more
    path = folder / "a.json"
    path.write_text(json.dumps(data, indent=2))
    return path


def read(path: Path) -> list[Question]:
    return list(read_questions(path, need_answers=True))


def test_questions_with_several_answers_and_with_none(tmp_path: Path) -> None:
    answers = [{"text": "Rome", "answer_start": 11}, {"text": "in Rome", "answer_start": 8}]
    plausible = [{"text": "old", "answer_start": 26}, {"text": "new", "answer_start": 3}]
    asked: list[dict[str, object]] = [
        {"id": "a", "question": " Where  is Ann? ", "answers": answers},
        {
            "id": 7,
            "question": "Why?",
            "answers": [],
            "is_impossible": True,
            "plausible_answers": plausible[:1],
        },
        {
            "id": "c",
            "question": "Why?",
            "answers": [],
            "is_impossible": True,
            "plausible_answers": plausible,
        },
    ]
    path = write(tmp_path, asked)
    first, second, third = read(path)
    assert first == Question(
        id="a",
        question="Where is Ann?",
        context=CONTEXT,
        answers=(Answer("Rome", 11), Answer("in Rome", 8)),
        impossible=False,
        plausible=(),
        title="Ann",
        source=str(path),
        line=8,
    )
    assert path.read_text().splitlines()[first.line - 1].strip() == "{"
    assert (second.id, second.impossible, second.answers) == ("7", True, ())
    assert second.plausible == (Answer("old", 26),)
    assert third.plausible == ()


def test_answers_may_be_unknown(tmp_path: Path) -> None:
    path = write(tmp_path, [{"id": "a", "question": "?"}])
    (found,) = read_questions(path, need_answers=False)
    assert (found.answers, found.impossible) == ((), False)


def test_a_row_a_question(tmp_path: Path) -> None:
    rows = [
        {
            "id": "a",
            "question": "?",
            "context": CONTEXT,
            "answers": {"text": ["Rome"], "answer_start": [11]},
        },
        {
            "id": "b",
            "question": "?",
            "context": CONTEXT,
            "answers": {"text": [], "answer_start": []},
        },
    ]
    lines = tmp_path / "a.jsonl"
    lines.write_text("\n".join(map(json.dumps, rows)))
    table = tmp_path / "a.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), table)
    for path in (lines, table):
        first, second = read(path)
        assert (first.answers, first.impossible, first.line) == ((Answer("Rome", 11),), False, 1)
        assert (second.answers, second.impossible) == ((), True)


def test_an_unclear_is_impossible_is_told_how_to_be_written(tmp_path: Path) -> None:
    path = write(tmp_path, [{"id": "a", "question": "?", "answers": [], "is_impossible": "no"}])
    with pytest.raises(ExampleError, match="neither true nor false; write true or false"):
        read(path)


def test_answers_that_are_not_needed_may_be_anything(tmp_path: Path) -> None:
    """The answers that predict wrote are read again, and those of other texts too."""
    path = tmp_path / "a.csv"
    rows = ["a,?,Ann is in Rome,Rome,10", "b,?,Ann is in Rome,,0", "c,?,Ann is in Rome,Oslo,3"]
    path.write_text("\n".join(["id,question,context,answer,start", *rows]) + "\n")
    answers = [row.answers for row in read_questions(path, need_answers=False)]
    assert answers == [(Answer("Rome", 10),), (), ()]
    with pytest.raises(ExampleError, match=r"a\.csv:4: the answer 'Oslo' is not at 3"):
        read(path)
    path = write(tmp_path, [{"id": "a", "question": "?", "answers": 5, "is_impossible": "no"}])
    (found,) = read_questions(path, need_answers=False)
    assert (found.answers, found.impossible) == ((), False)


@pytest.mark.parametrize(
    "names", ["Answer,Answer Start", "Answer text,answerStart", "answer,start?"]
)
def test_names_of_columns_may_be_spelled_as_in_a_spreadsheet(names: str, tmp_path: Path) -> None:
    """The second of two equal texts is the answer, which only the position says."""
    path = tmp_path / "a.csv"
    path.write_text(f"ID,Question,Context,{names}\na,Where?,Rome or Rome,Rome,8\n")
    (question,) = read(path)
    assert (question.id, question.answers) == ("a", (Answer("Rome", 8),))


def test_a_word_for_no_answer_is_told_to_be_left_out(tmp_path: Path) -> None:
    """With --on-bad skip, a model would learn that every question has an answer."""
    path = tmp_path / "a.csv"
    path.write_text("question,context,answer\nWho?,Ann is in Rome,Ann\nWhy?,Ann is in Rome,N/A\n")
    with pytest.raises(ExampleError, match="'N/A' is not in the context; leave it empty where no"):
        read(path)


@pytest.mark.parametrize(
    ("context", "start", "counted"),
    [
        ("It is \u00e9t\u00e9 in Rome", 15, "bytes of UTF-8: it is 13 in characters"),
        ("\U0001f525\U0001f600 Ann in Rome", 12, "units of UTF-16, as JavaScript"),
        ("Ann\r\nis\r\nin Rome", 10, "a CRLF as one character: it is 12 in characters"),
        ("Ann is in Rome", 11, "from 1: it is 10 in characters"),
    ],
)
def test_positions_in_other_units_are_recognised(
    context: str, start: int, counted: str, tmp_path: Path
) -> None:
    """Tools count bytes, or units of UTF-16, and an answer is then found at another place."""
    answers = [{"text": "Rome", "answer_start": start}]
    line = {"id": "a", "question": "Where?", "context": context, "answers": answers}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(line))
    with pytest.raises(
        ExampleError, match=f"'Rome' is not at {start}: .* seems to count {counted}"
    ):
        read(path)


@pytest.mark.parametrize("rows_end", ["\n", "\r\n"])
def test_positions_count_the_line_ends_of_a_context_in_csv(rows_end: str, tmp_path: Path) -> None:
    context = 'Ann\r\nis "old".\n\nIn\rRome.'
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as opened:
        writer = csv.writer(opened, lineterminator=rows_end)
        writer.writerow(["id", "question", "context", "answer_text", "answer_start"])
        writer.writerow(["a", "Where?", context, "Rome", context.index("Rome")])
        writer.writerow(["b", "Where?", context, "", ""])
    first, second = read(path)
    assert first.context == second.context == context
    assert first.answers == (Answer("Rome", context.index("Rome")),)
    assert (first.line, second.line) == (2, 7)


def test_lines_are_those_of_the_file_however_it_is_laid_out(tmp_path: Path) -> None:
    one = {"id": "a", "question": "?", "answers": [{"text": "x", "answer_start": 0}]}
    other = one | {"id": "b"}
    asked = f"[{json.dumps(one)},\n\n{json.dumps(other)}]"
    text = f'\r\n{{"data":\r[{{"paragraphs":[{{"context":"x\\n","qas":{asked}}}]}}]}}'
    path = tmp_path / "a.json"
    path.write_bytes(text.encode())
    assert [item.line for item in read(path)] == [3, 5]


def test_the_context_of_many_questions_is_kept_once(tmp_path: Path) -> None:
    size, count = 200_000, 100
    questions = [{"id": number, "question": "Why?", "answers": []} for number in range(count)]
    paragraph = {"context": "Rome " * (size // 5), "qas": questions}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": [paragraph]}]}))
    tracemalloc.start()
    rows = list(read_questions(path, need_answers=False))
    identities = [SPAN.identity(row) for row in rows]
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(identities) == len(rows) == count
    assert held < 10 * size
