"""The columns on which a model was trained: options that name others leave them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.network.config import Preprocessing
from bertsmith.recipes.predict.reading import reading_as_trained, reading_of_texts
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.config import Reading
from bertsmith.tasks.multi_label import MULTI_LABEL
from bertsmith.tasks.tag import TAG
from bertsmith.text.config import Columns

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


def test_sentences_beside_labelled_ones_are_told_apart_by_the_same_column(tmp_path: Path) -> None:
    labelled, texts = tmp_path / "labelled.csv", tmp_path / "texts.csv"
    labelled.write_text("number,form,tag\n1,Ann,B-PER\n1,sat,O\n2,He,O\n", encoding="utf-8")
    texts.write_text("number,form\n1,Bob\n1,ran\n2,She\n", encoding="utf-8")
    columns = Columns(text="form", label="tag", group="number")
    reading = reading_of_texts(Reading(columns=columns), texts, labelled)
    rows = TAG.reader.unlabelled(texts, TAG.reader.resolve(texts, reading))
    assert [row.text for row in rows] == ["Bob ran", "She"]
