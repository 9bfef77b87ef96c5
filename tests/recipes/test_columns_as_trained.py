"""The columns on which a model was trained: options that name others leave them as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bertsmith.network.config import Preprocessing
from bertsmith.recipes.predict.reading import reading_as_trained, reading_of_texts
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.config import Reading
from bertsmith.tasks.multi_label import MULTI_LABEL
from bertsmith.tasks.rank import RANK
from bertsmith.tasks.tag import TAG
from bertsmith.text.config import Columns, LabelSeparator

TRAINED = Preprocessing(longest=16, text_column="body", label_column="grade")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (Columns(), ("b", "2")),
        (Columns(label="score"), ("b", "3")),
        (Columns(id="n"), ("b", "2")),
        (Columns(text="text"), ("a", "2")),
        (Columns(text="text", label="score"), ("a", "3")),
    ],
)
def test_another_column_that_is_named_does_not_change_the_text(
    tmp_path: Path, given: Columns, read: tuple[str, str]
) -> None:
    """With the column of ids or of labels named, another text was read in silence."""
    file = tmp_path / "rows.csv"
    file.write_text("n,text,body,grade,score\n1,a,b,2,3\n", encoding="utf-8")
    reading = reading_as_trained(Reading(columns=given), TRAINED, str(file), labelled=True)
    (row,) = CLASSIFY.reader.labelled(file, reading)
    assert (row.text, row.label) == read
    reading = reading_as_trained(Reading(columns=given), TRAINED, str(file), labelled=False)
    (row,) = CLASSIFY.reader.unlabelled(file, reading)
    assert row.text == read[0]


def test_the_columns_of_several_labels_are_those_of_training(tmp_path: Path) -> None:
    """They were asked for again, by the option for one column of labels."""
    file, trained = tmp_path / "rows.csv", Preprocessing(longest=16, label_columns=("y", "x"))
    file.write_text("x,y,z,text\n1,0,1,a\n0,1,1,b\n", encoding="utf-8")
    reading = reading_as_trained(Reading(), trained, str(file), labelled=True)
    rows = list(MULTI_LABEL.reader.labelled(file, MULTI_LABEL.reader.resolve(file, reading)))
    assert [row.labels for row in rows] == [("x",), ("y",)]
    kept = Preprocessing.from_dict(trained.to_dict())
    assert kept == trained


def test_several_labels_are_separated_as_in_training(tmp_path: Path) -> None:
    """The separator was asked for again, or cells were labels of their own."""
    trained = Preprocessing(longest=16, label_column="topics", label_separator=";")
    file = tmp_path / "rows.csv"
    file.write_text('text,topics\na,"x;y, z"\nb,x\n', encoding="utf-8")

    def read(given: Columns) -> list[object]:
        reading = reading_as_trained(Reading(columns=given), trained, str(file), labelled=True)
        rows = MULTI_LABEL.reader.labelled(file, MULTI_LABEL.reader.resolve(file, reading))
        return [row.labels for row in rows]

    assert read(Columns()) == [("x", "y, z"), ("x",)]
    assert read(Columns(label_separator="|")) == [("x;y, z",), ("x",)]
    assert Preprocessing.from_dict(trained.to_dict()) == trained


@pytest.mark.parametrize(
    ("sign", "cells", "read"),
    [
        # the separator was asked for, since labels were between other signs in training
        (",", ["x|y", "z"], [("x", "y"), ("z",)]),
        ("auto", ["x, y", "x", "y, z"], [("x", "y"), ("x",), ("y", "z")]),
        # that of training divides a label here, and another one divides none into known labels
        (";", ["x; r, s"], [("x", "r, s")]),
        (",", ["x|unknown", "y"], [("x|unknown",), ("y",)]),
    ],
)
def test_several_labels_are_separated_by_what_leaves_those_of_the_model(
    tmp_path: Path, sign: LabelSeparator, cells: list[str], read: list[tuple[str, ...]]
) -> None:
    trained = Preprocessing(longest=16, label_separator=sign)
    file = tmp_path / "rows.csv"
    rows = [f'text {number},"{cell}"' for number, cell in enumerate(cells)]
    file.write_text("\n".join(["text,topics", *rows]), encoding="utf-8")
    reading = reading_as_trained(
        Reading(), trained, str(file), labelled=True, several=("x", "y", "z", "r, s")
    )
    labelled = MULTI_LABEL.reader.labelled(file, MULTI_LABEL.reader.resolve(file, reading))
    assert [row.labels for row in labelled] == read


def test_the_part_of_a_cell_that_is_the_label_is_that_of_training(tmp_path: Path) -> None:
    trained = Preprocessing(longest=16, label_until=":")
    file = tmp_path / "rows.csv"
    file.write_text("text,label\na,NUM:date\nb,LOC:city\n", encoding="utf-8")

    def read(given: Columns) -> list[str | None]:
        reading = reading_as_trained(Reading(columns=given), trained, str(file), labelled=True)
        return [row.label for row in CLASSIFY.reader.labelled(file, reading)]

    assert read(Columns()) == ["NUM", "LOC"]
    assert read(Columns(label_until="M")) == ["NU", "LOC:city"]
    assert Preprocessing.from_dict(trained.to_dict()) == trained


RANKED = """number,query,passage,relevance,session
1,who,Ann,1,a
2,where,here,0,a
3,who,Bob,0,b
4,where,there,1,b
"""


def test_passages_are_grouped_by_the_column_of_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were grouped by the text of their query, which gave another MRR in silence."""
    file, trained = (
        tmp_path / "rows.csv",
        Preprocessing(longest=16, pairs=True, group_column="session"),
    )
    file.write_text(RANKED, encoding="utf-8")

    def groups(given: Columns) -> list[str | None]:
        reading = reading_as_trained(Reading(columns=given), trained, str(file), labelled=True)
        return [row.group for row in RANK.reader.labelled(file, reading)]

    assert groups(Columns()) == ["a", "a", "b", "b"]
    assert groups(Columns(group="number")) == ["1", "2", "3", "4"]
    assert Preprocessing.from_dict(trained.to_dict()) == trained
    assert not capsys.readouterr().err
    # to answer for, no query is needed
    file.write_text(RANKED.replace("session", "s"), encoding="utf-8")
    assert reading_as_trained(Reading(), trained, str(file), labelled=False) == Reading()
    assert not capsys.readouterr().err
    assert groups(Columns()) == ["who", "where", "who", "where"]
    assert "rows.csv has no column 'session', by which rows" in capsys.readouterr().err


def test_words_are_of_the_sentences_of_the_column_of_training(tmp_path: Path) -> None:
    """All words of a table whose sentences are numbered in its last column were one sentence."""
    trained = Preprocessing(longest=16, text_column="form", label_column="tag", group_column="n")
    file = tmp_path / "rows.csv"
    file.write_text("form,tag,n\nAnn,B-PER,1\nsat,O,1\nHe,O,2\nran,O,2\n", encoding="utf-8")
    reading = reading_as_trained(Reading(), trained, str(file), labelled=True)
    assert [row.text for row in TAG.reader.labelled(file, reading)] == ["Ann sat", "He ran"]
    reading = reading_as_trained(Reading(), trained, str(file), labelled=False)
    assert [row.text for row in TAG.reader.unlabelled(file, reading)] == ["Ann sat", "He ran"]
    # by names that are none of the usual ones, and without tags, each row was a text
    other = replace(trained, text_column="piece")
    file.write_text("piece,n\nAnn,1\nsat,1\nHe,2\nran,2\n", encoding="utf-8")
    reading = reading_as_trained(Reading(), other, str(file), labelled=False)
    assert [row.text for row in TAG.reader.unlabelled(file, reading)] == ["Ann sat", "He ran"]
    # whole texts may be numbered too
    file.write_text("text,n\nAnn sat here today,1\nHe ran there,2\n", encoding="utf-8")
    for no_words in (other, replace(other, text_column=None)):
        reading = reading_as_trained(Reading(), no_words, str(file), labelled=False)
        rows = [row.text for row in TAG.reader.unlabelled(file, reading)]
        assert rows == ["Ann sat here today", "He ran there"]
    lists = tmp_path / "rows.jsonl"
    lists.write_text('{"form": ["He"], "tag": ["O"], "n": 1}\n', encoding="utf-8")
    reading = reading_as_trained(Reading(), trained, str(lists), labelled=True)
    assert [row.text for row in TAG.reader.labelled(lists, reading)] == ["He"]


def test_a_column_read_by_its_position_in_training_is_named_where_it_has_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids in the place of the texts of training were answered for in silence."""
    trained = Preprocessing(longest=16, text_column="1", label_column="0")
    file = tmp_path / "rows.csv"
    file.write_text("text,id\na good text,17\na bad one,18\n", encoding="utf-8")
    reading = reading_as_trained(Reading(), trained, str(file), labelled=False)
    assert [row.text for row in CLASSIFY.reader.unlabelled(file, reading)] == ["17", "18"]
    assert "rows.csv: column 1, 'id', is read, by position as in training; --text" in (
        capsys.readouterr().err
    )
    given = Reading(columns=Columns(text="text"))
    assert reading_as_trained(given, trained, str(file), labelled=False) == given
    file.write_text("17,a good text\n18,a bad one\n", encoding="utf-8")
    reading = reading_as_trained(Reading(), trained, str(file), labelled=False)
    assert reading.columns.text == "1"
    assert not capsys.readouterr().err


def test_sentences_beside_labelled_ones_are_told_apart_by_the_same_column(tmp_path: Path) -> None:
    labelled, texts = tmp_path / "labelled.csv", tmp_path / "texts.csv"
    labelled.write_text("number,form,tag\n1,Ann,B-PER\n1,sat,O\n2,He,O\n", encoding="utf-8")
    texts.write_text("number,form\n1,Bob\n1,ran\n2,She\n", encoding="utf-8")
    columns = Columns(text="form", label="tag", group="number")
    reading = reading_of_texts(Reading(columns=columns), texts, labelled)
    rows = TAG.reader.unlabelled(texts, TAG.reader.resolve(texts, reading))
    assert [row.text for row in rows] == ["Bob ran", "She"]
