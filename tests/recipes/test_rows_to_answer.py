"""The rows of a table beside what is asked of a model: each with its own columns."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bertsmith.core.errors import ExampleError
from bertsmith.recipes.predict.recipe import AnswerWriter
from bertsmith.recipes.predict.rows import (
    task_rows,
    text_rows,
    value_rows,
    with_written_offsets,
)
from bertsmith.recipes.predict.texts import Texts
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.config import Reading
from bertsmith.tasks.multi_label import MULTI_LABEL
from bertsmith.tasks.span import SPAN
from bertsmith.tasks.tag import TAG
from bertsmith.tasks.task import Task
from bertsmith.text.config import Columns, OnBad
from bertsmith.text.examples.example import Example
from bertsmith.text.growing import as_first_opened

SKIP = Reading(on_bad="skip")


def test_fields_inside_columns_of_parquet_are_no_columns_of_answers(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"record": [{"note": "good"}]}), path)
    reading = Reading(columns=Columns(text="record.note"))
    (row,) = task_rows(CLASSIFY, str(path), reading, pairs=False)
    assert row.columns == {"record": {"note": "good"}}


def asked(
    task: Task[Any] | None, tmp_path: Path, name: str, content: str, reading: Reading
) -> list[tuple[dict[str, object], str | None]]:
    """The columns of each row, and the text or question that is asked with them."""
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    rows = (
        text_rows(str(path), reading, pairs=False)
        if task is None
        else task_rows(task, str(path), reading, pairs=None if task is not CLASSIFY else False)
    )
    role = "question" if task is SPAN else "text"
    return [
        (dict(row.columns), None if row.example is None else getattr(row.example, role))
        for row in rows
    ]


@pytest.mark.parametrize("task", [CLASSIFY, TAG, SPAN, None], ids=["class", "tag", "span", "none"])
@pytest.mark.parametrize("blank", range(3))
def test_records_on_one_line_keep_their_own_answers(
    tmp_path: Path, task: Task[Any] | None, blank: int
) -> None:
    """Exporters write whole files on one line, where a blank text is not known by its line."""
    role = "question" if task is SPAN else "text"
    texts = ["" if number == blank else f"text {number}" for number in range(3)]
    records = ",".join(
        f'{{"{role}": "{text}", "context": "a text", "k": {number}}}'
        for number, text in enumerate(texts)
    )
    found = asked(task, tmp_path, "rows.json", f"[{records}]", Reading())
    assert [(columns["k"], text) for columns, text in found] == [
        (number, text or None) for number, text in enumerate(texts)
    ]


def test_bad_records_on_one_line_are_passed_over(tmp_path: Path) -> None:
    content = '[{"text": "a"}, 5, {"text": ["x"]}, {}, {"text": ""}, {"text": "b"}, 6]'
    found = asked(CLASSIFY, tmp_path, "rows.json", content, SKIP)
    assert found == [
        ({"text": "a"}, "a"),
        ({"text": ["x"]}, None),
        ({}, None),
        ({"text": ""}, None),
        ({"text": "b"}, "b"),
    ]


def test_a_blank_first_row_is_no_header(tmp_path: Path) -> None:
    reading = Reading(columns=Columns(text="0", header="no"))
    found = asked(CLASSIFY, tmp_path, "rows.csv", ",1\ngood,2\n", reading)
    assert found == [({"0": "", "1": "1"}, None), ({"0": "good", "1": "2"}, "good")]


def test_columns_of_one_name_are_all_kept(tmp_path: Path) -> None:
    content = "text,x,x,x.1,,\na,1,2,3,4,5\n"
    found = asked(CLASSIFY, tmp_path, "rows.csv", content, Reading())
    kept = {"text": "a", "x": "1", "x.2": "2", "x.1": "3", "": "4", ".1": "5"}
    assert found == [(kept, "a")]


def test_thousands_of_columns_without_a_name_are_named_in_time(tmp_path: Path) -> None:
    """Spreadsheets export as many as they have, 16,384."""
    began = time.process_time()
    commas = "," * 16_383
    ((columns, _),) = asked(CLASSIFY, tmp_path, "rows.csv", f"text{commas}\na{commas}\n", Reading())
    assert list(columns)[1:4] == ["", ".1", ".2"]
    assert len(columns) == 16_384
    assert time.process_time() - began < 5  # what grew with the square would take minutes


@pytest.mark.parametrize("task", [CLASSIFY, SPAN, None], ids=["class", "span", "none"])
@pytest.mark.parametrize(("name", "sign"), [("rows.csv", ","), ("rows.tsv", "\t")])
def test_empty_rows_of_a_table_keep_their_places(
    tmp_path: Path, task: Task[Any] | None, name: str, sign: str
) -> None:
    """Excel writes a row that is empty between others as delimiters alone."""
    role = "question" if task is SPAN else "text"
    lines = [f"k,{role},context", "1,a,one", ",,", " , ,", "4,b,two", ",,", ""]
    content = "\n".join(lines).replace(",", sign)
    found = asked(task, tmp_path, name, content, Reading())
    assert [(str(columns["k"]).strip(), text) for columns, text in found] == [
        ("1", "a"), ("", None), ("", None), ("4", "b"), ("", None)
    ]  # fmt: skip


def test_blank_lines_of_a_table_are_no_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for pandas, which writes an empty cell that is alone in its row in quotes."""
    found = asked(CLASSIFY, tmp_path, "rows.csv", 'text\na\n\n""\nb\n', Reading())
    assert [text for _, text in found] == ["a", None, "b"]
    assert "rows.csv: 1 blank line skipped" in capsys.readouterr().err


def test_empty_rows_among_texts_are_counted(tmp_path: Path) -> None:
    """`inspect` passes over them, `embed` gives them a vector."""
    (tmp_path / "rows.csv").write_text("text,k\na,1\n,\nb,2\n,3\n", encoding="utf-8")
    texts = Texts(str(tmp_path / "rows.csv"), Columns())
    assert [(example.text, example.line) for example in texts] == [("a", 2), ("b", 4)]
    assert texts.blank == 2
    texts = Texts(str(tmp_path / "rows.csv"), Columns(), keep_blank=True)
    assert [example.text for example in texts] == ["a", "", "b", ""]
    assert texts.blank == 0


def test_lists_in_csv_can_be_told_from_blank_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """A text without entities has an answer; a blank row has none."""
    entity = {"start": 0, "end": 3, "label": "PER", "text": "Ann"}
    writer = AnswerWriter("csv")
    writer.add({"text": "Ann sits"}, {"entities": [entity]}, lambda: iter(()))
    writer.add({"text": "he sits"}, {"entities": []}, lambda: iter(()))
    writer.blank({"text": ""})
    writer.end()
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [json.loads(row["entities"]) for row in rows[:2]] == [[entity], []]
    assert rows[2]["entities"] == ""


def test_rows_of_thousands_of_columns_are_written_in_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = time.process_time()
    writer = AnswerWriter("csv")
    columns = {f"column {number}": "1" for number in range(10_000)}
    for _ in range(20):
        writer.add(dict(columns), {"label": "a"}, lambda: iter(()))
    assert len(capsys.readouterr().out.splitlines()) == 21
    assert time.process_time() - began < 5  # what grew with the square would take minutes


def test_answers_of_several_kinds_are_no_csv(capsys: pytest.CaptureFixture[str]) -> None:
    """What fills the masks of a pair was left out after a pair without any."""
    writer = AnswerWriter("csv")
    writer.add({"text": "a"}, {"is_next": True}, lambda: iter(()))
    with pytest.raises(ExampleError, match="'masks', which the first one lacks; use --format json"):
        writer.add({"text": "[MASK]"}, {"masks": [[]], "is_next": True}, lambda: iter(()))
    assert capsys.readouterr().out == "text,is_next\na,True\n"


@pytest.mark.parametrize(
    ("name", "lists", "cells"),
    [
        ("labels", [["a", "b"], ["a"], []], ["a|b", "a", ""]),
        ("prediction_set", [[0, 2], [1], []], ["0|2", "1", ""]),
    ],
)
def test_labels_in_csv(
    capsys: pytest.CaptureFixture[str], name: str, lists: list[list[object]], cells: list[str]
) -> None:
    writer = AnswerWriter("csv")
    for number, values in enumerate(lists):
        writer.add({"text": str(number)}, {name: values}, lambda: iter(()))
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row[name] for row in rows] == cells


@pytest.mark.parametrize("odd", ["b|c", "<b>", "[b"])
def test_labels_in_csv_are_read_as_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], odd: str
) -> None:
    """One label `b|c` was written as the two labels b and c are."""
    given = [("a", odd), ("a",), (odd,), ()]
    writer = AnswerWriter("csv", labels=["a", odd])
    for number, labels in enumerate(given):
        writer.add({"text": f"text {number}"}, {"labels": list(labels)}, lambda: iter(()))
    file = tmp_path / "answers.csv"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    read = MULTI_LABEL.reader.labelled(file, MULTI_LABEL.reader.resolve(file, Reading()))
    assert [row.labels for row in read] == given


def test_answers_that_are_all_blank_have_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("csv", "jsonl"):
        writer = AnswerWriter(form, keys=["label", "probability", "probabilities"])
        writer.blank({"text": "", "label": "x"})
        writer.end()
    header, row, line = capsys.readouterr().out.splitlines()
    assert header == "text,label,predicted_label,probability"
    assert row == ",x,,"
    assert list(json.loads(line)) == [
        "text", "label", "predicted_label", "probability", "probabilities"
    ]  # fmt: skip


def test_bad_lines_are_passed_over(tmp_path: Path) -> None:
    """`--on-bad skip` was accepted for lines of text, and did nothing."""
    path = tmp_path / "pairs.txt"
    path.write_text("a\tb\nalone\n\ne\tf\n", encoding="utf-8")
    reading = Reading(on_bad="skip")
    rows = list(task_rows(CLASSIFY, str(path), reading, pairs=True))
    assert [(row.columns["text"], row.example is None, row.bad) for row in rows] == [
        ("a", False, False), ("alone", True, True), ("", True, False), ("e", False, False)
    ]  # fmt: skip
    assert reading.bad_rows.count == 1


def test_lines_that_cannot_be_decoded_are_passed_over(tmp_path: Path) -> None:
    """They ended `predict` in spite of `--on-bad`."""
    path = tmp_path / "lines.txt"
    path.write_bytes("à\n".encode() * 40 + b"\xff\xfeabc\nlast\n")
    reading = Reading(on_bad="quarantine")
    rows = list(task_rows(CLASSIFY, str(path), reading, pairs=False))
    assert [row.bad for row in rows] == [False] * 40 + [True, False]
    assert rows[40].columns["text"] == "\ufffd\ufffdabc"
    kept = json.loads((tmp_path / "lines.txt.bad.jsonl").read_text())
    assert (kept["line"], kept["row"]) == (41, "\udcff\udcfeabc")
    with pytest.raises(ExampleError, match=r"lines\.txt:41: is not UTF-8"):
        list(task_rows(CLASSIFY, str(path), Reading(), pairs=False))


@pytest.mark.parametrize(
    ("encoding", "codec", "byte"), [("auto", "UTF-8", 0xFF), ("cp1252", "CP1252", 0x81)]
)
def test_lines_of_standard_input_that_cannot_be_decoded_are_passed_over(
    encoding: str, codec: str, byte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only those of a file."""
    data = b"first\nabc" + bytes([byte]) + b"\r\nlast\n"

    def rows(on_bad: OnBad) -> tuple[Reading, list[Any]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        reading = Reading(columns=Columns(encoding=encoding), on_bad=on_bad)
        return reading, list(task_rows(CLASSIFY, "-", reading, pairs=False))

    reading, passed = rows("skip")
    assert [row.bad for row in passed] == [False, True, False]
    assert [row.columns["text"] for row in passed] == ["first", "abc\ufffd", "last"]
    assert reading.bad_rows.count == 1
    with pytest.raises(ExampleError, match=f"^standard input:2: is not {codec}: byte 0x{byte:X}; "):
        rows("fail")


def test_what_no_line_can_pass_over_is_an_error_of_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The escape byte of ISO-2022-JP is below 128, and has no stand-in."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"first\nabc\x1b")))
    reading = Reading(columns=Columns(encoding="iso2022_jp"), on_bad="skip")
    with pytest.raises(ExampleError, match=r"^standard input:2: is not ISO2022_JP: byte 0x1B; "):
        list(task_rows(CLASSIFY, "-", reading, pairs=False))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"text": 5}\n{"txt": "x"}\n{"text": ""}\n', "2 bad rows, with blank answers; "),
        ('{"text": 5}\n{"text": \n', "2 bad rows, 1 of them with a blank answer, the others left"),
        ('{"text": \n', "1 bad row left out; "),
    ],
)
def test_bad_rows_with_a_blank_answer_are_not_said_to_be_left_out(
    tmp_path: Path, content: str, told: str
) -> None:
    """They were counted as blank rows, and as left out."""
    path, reading = tmp_path / "rows.jsonl", Reading(on_bad="skip")
    path.write_text('{"text": "a"}\n' + content, encoding="utf-8")
    rows = list(task_rows(CLASSIFY, str(path), reading, pairs=False))
    blank = [row for row in rows if row.example is None]
    assert sum(not row.bad for row in blank) == content.count('""')
    summary = reading.bad_rows.message(answered=sum(row.bad for row in blank))
    assert summary is not None
    assert summary.startswith(told)


def test_a_pair_with_a_blank_text_is_a_blank_row() -> None:
    rows = list(value_rows([("a", " "), ("", "b"), "\t", ("a", "b")], None))
    assert [row.example is None for row in rows] == [True, True, True, False]
    assert [dict(row.columns) for row in rows[:3]] == [
        {"text": "a", "text_pair": " "}, {"text": "", "text_pair": "b"}, {"text": "\t"},
    ]  # fmt: skip
    assert rows[3].example == Example(
        text="a", text_pair="b", label=None, source="examples", line=4
    )


@pytest.mark.parametrize("written", ["Ann Lee sat", "  Ann \t Lee sat", "Ann\u3000Lee\r\nsat "])
def test_entities_are_characters_of_the_text_as_it_was_written(written: str) -> None:
    entity = {"start": 0, "end": 7, "label": "PER", "text": "Ann Lee"}
    last = {"start": 8, "end": 11, "label": "X", "text": "sat"}
    record = {"entities": [entity, last]}
    (row,) = value_rows([written], TAG)
    assert row.example is not None
    found = with_written_offsets(record, row.example.written)
    (start, end), (second, behind) = ((item["start"], item["end"]) for item in found["entities"])
    assert (start, end) == (written.index("Ann"), written.index("Lee") + 3)
    assert (second, behind) == (written.index("sat"), written.index("sat") + 3)
    assert [item["text"] for item in found["entities"]] == [written[start:end], "sat"]
    assert found["entities"][0]["label"] == "PER"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, "cut") for name in ("a.txt", "a.csv", "a.tsv", "a.jsonl")),
        *((name, "cut and grown") for name in ("a.txt", "a.csv")),
        ("a.txt", "rewritten"),
    ],
)
@pytest.mark.parametrize("on_bad", ["fail", "skip"])
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, name: str, on_bad: OnBad, change: str
) -> None:
    """Rows that are gone would have no answers, or a half of one an answer of its own."""
    path = tmp_path / name
    text = "word " * 400
    row = f'{{"text": "{text}"}}\n' if name == "a.jsonl" else f"{text}\n"
    path.write_text("text\n" * (name in ("a.csv", "a.tsv")) + row * 2000, encoding="utf-8")
    rows = text_rows(str(path), Reading(on_bad=on_bad), pairs=False)
    with as_first_opened(path):
        assert next(rows).example is not None
        if change in ("cut", "cut and grown"):
            os.truncate(path, 2_000_000)
        with path.open("r+" if change == "rewritten" else "a", encoding="utf-8") as file:
            if change == "rewritten":
                file.write("other")
            if change != "cut":
                file.write(row * 1000)
        with pytest.raises(ExampleError, match=rf"{name}: changed while it was read"):
            for _ in rows:
                pass


@pytest.mark.parametrize("half", ["", "half of a li"])
@pytest.mark.parametrize("encoding", ["auto", "utf-8", "cp1252"])
def test_of_a_log_that_grows_the_lines_are_read_that_it_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str, half: str
) -> None:
    path = tmp_path / "a.log"
    lines = [f"{number} {'word ' * 200}é" for number in range(2500)]
    data = ("\n".join(lines) + "\n" + half).encode("cp1252" if encoding == "cp1252" else "utf-8")
    path.write_bytes(data)
    columns = Columns(encoding=encoding)
    for source in (
        text_rows(str(path), Reading(columns=columns), pairs=False),
        Texts(str(path), columns),
    ):
        path.write_bytes(data)
        read: Any = iter(source)
        with as_first_opened(path):
            texts = [next(read)]
            with path.open("ab") as file:
                file.write(b"ne\nand another\n")
            texts += read
        shown = [getattr(each, "text", None) or each.columns["text"] for each in texts]
        assert shown == [line.strip() for line in lines]
        note = capsys.readouterr().err.replace("\n", " ")
        assert note.count("a.log grew while it was read") == 1
        assert f"{len(data) - len(half):,} bytes" in note


@pytest.mark.parametrize("half", [0, 1, 5])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_of_a_table_that_grows_the_rows_are_read_that_it_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, half: int
) -> None:
    path = tmp_path / name
    texts = [f"{number} {'word ' * 200}" for number in range(2500)]
    rows = [json.dumps({"text": text}) if name == "a.jsonl" else text for text in texts]
    data = "\n".join(["text"] * (name != "a.jsonl") + rows) + "\n"
    for source in (text_rows(str(path), Reading(), pairs=False), Texts(str(path), Columns())):
        path.write_text(data + rows[0][:half], encoding="utf-8")
        read: Any = iter(source)
        with as_first_opened(path):
            shown = [next(read)]
            with path.open("a", encoding="utf-8") as file:
                file.write(rows[0][half:] + "\n" + rows[1] + "\n")
            shown += read
        examples = [getattr(each, "example", each) for each in shown]
        assert [example.text for example in examples] == [text.strip() for text in texts]
        note = capsys.readouterr().err.replace("\n", " ")
        assert note.count(f"{name} grew while it was read") == 1
        assert f"{len(data):,} bytes" in note


@pytest.mark.parametrize("change", ["cut", "rewritten"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_parquet_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, change: str, packed: bool
) -> None:
    path = tmp_path / ("a.parquet.gz" if packed else "a.parquet")
    output = io.BytesIO()
    for text in ("first", "other"):
        output = io.BytesIO()
        table = pa.table({"text": [f"{text} {number}" for number in range(5000)]})
        parquet.write_table(table, output, row_group_size=500, compression="none")
        if text == "first":
            path.write_bytes(gzip.compress(output.getvalue(), 1) if packed else output.getvalue())
    rows = text_rows(str(path), Reading(), pairs=False)
    assert next(rows).example is not None
    if change == "cut":
        os.truncate(path, path.stat().st_size // 2)
    else:
        with path.open("r+b") as file:
            file.write(output.getvalue()[: path.stat().st_size])
    with pytest.raises(ExampleError, match="changed while it was read"):
        for _ in rows:
            pass


def test_a_file_that_is_replaced_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(("word " * 400 + "\n") * 1250, encoding="utf-8")
    rows = text_rows(str(path), Reading(), pairs=False)
    next(rows)
    (tmp_path / "b.txt").write_text("other\n", encoding="utf-8")
    (tmp_path / "b.txt").replace(path)
    assert sum(1 for _ in rows) == 1249
