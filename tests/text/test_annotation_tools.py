"""Exports of programs for annotation: doccano, Label Studio, Prodigy and brat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.config import Columns
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.formats.conll import read_tagged
from bertsmith.text.examples.reading import read_examples
from bertsmith.text.examples.tagged import Tagged

TEXT = "Anna visits Rome"
ENTITIES = [(0, 4, "PER"), (12, 16, "LOC")]
WORDS = [
    {"text": word, "start": TEXT.index(word), "end": TEXT.index(word) + len(word), "id": number}
    for number, word in enumerate(TEXT.split())
]
PRODIGY = {"_input_hash": 7, "_task_hash": -3}


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    """Write records, one a line, or as a list to a .json."""
    lines = "".join(json.dumps(record) + "\n" for record in records)
    path.write_text(json.dumps(records) if path.suffix == ".json" else lines)
    return path


def tagged(path: Path, columns: Columns | None = None) -> list[Tagged]:
    return list(read_tagged(path, need_tags=True, table=columns or Columns()))


EXPORTS: dict[str, dict[str, Any]] = {
    "doccano": {"id": 1, "text": TEXT, "label": [list(each) for each in ENTITIES], "Comments": []},
    "doccano with relations": {
        "text": TEXT,
        "entities": [
            {"id": 3, "label": label, "start_offset": start, "end_offset": end}
            for start, end, label in ENTITIES
        ],
        "relations": [],
    },
    "Label Studio": {
        "text": TEXT,
        "id": 2,
        "label": [
            {"start": start, "end": end, "text": TEXT[start:end], "labels": [label]}
            for start, end, label in ENTITIES
        ],
        "annotator": 1,
    },
    "Prodigy": {
        "text": TEXT,
        **PRODIGY,
        "tokens": WORDS,
        "spans": [
            {"start": start, "end": end, "token_start": 0, "token_end": 0, "label": label}
            for start, end, label in ENTITIES
        ],
        "answer": "accept",
    },
}


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize("extension", ["jsonl", "json"])
def test_entities(tmp_path: Path, name: str, extension: str) -> None:
    path = write(tmp_path / f"a.{extension}", [EXPORTS[name]] * 2)
    assert recognise(path).task == "tag"
    first, _ = tagged(path)
    assert first.text == TEXT
    assert [tuple(each) for each in first.entities or ()] == ENTITIES
    assert first.tags == ("B-PER", "O", "B-LOC")


def test_records_of_prodigy_without_spans_are_texts_to_be_tagged(tmp_path: Path) -> None:
    record = {key: value for key, value in EXPORTS["Prodigy"].items() if key != "spans"}
    (found,) = read_tagged(write(tmp_path / "a.jsonl", [record]), need_tags=False)
    assert (found.text, found.tags) == (TEXT, None)
    # tokens with tags are read as before, a text beside them or not
    tokens = {"text": TEXT, "tokens": TEXT.split(), "tags": ["B-PER", "O", "B-LOC"]}
    assert tagged(write(tmp_path / "b.jsonl", [tokens]))[0].tags == ("B-PER", "O", "B-LOC")


def test_an_entity_whose_text_stands_elsewhere_is_refused(tmp_path: Path) -> None:
    text = "\U0001f600 Anna visits Rome\nagain"
    mark = {"start": 2, "end": 6, "text": "Anna", "labels": ["PER"]}
    over = {"start": 14, "end": 24, "text": "Rome\\nagain", "labels": ["LOC"]}
    path = write(tmp_path / "a.jsonl", [{"text": text, "label": [mark, over]}])
    assert [tuple(each) for each in tagged(path)[0].entities or ()] == [
        (2, 6, "PER"),
        (14, 24, "LOC"),
    ]
    # the emoji counted as two, as browsers do
    write(path, [{"text": text, "label": [{**mark, "start": 3, "end": 7}]}])
    with pytest.raises(
        ExampleError, match=r":1: the entity at 3 to 7 is 'nna ', not 'Anna'; count characters"
    ):
        tagged(path)
    several = {"start": 2, "end": 6, "labels": ["PER", "ORG"]}
    write(path, [{"text": text, "label": [several]}])
    with pytest.raises(ExampleError, match=r"an entity is not \[integer, integer, string\]"):
        tagged(path)


@pytest.mark.parametrize("answer", ["reject", "ignore"])
def test_what_was_not_accepted_in_prodigy_is_not_learned(tmp_path: Path, answer: str) -> None:
    rejected = {**EXPORTS["Prodigy"], "answer": answer}
    path = write(tmp_path / "a.jsonl", [EXPORTS["Prodigy"], rejected])
    message = rf"jsonl:2: its annotation was not accepted in Prodigy: the answer is '{answer}'; "
    with pytest.raises(ExampleError, match=message):
        tagged(path)
    bad = BadRows("skip")
    assert len(list(read_tagged(path, need_tags=True, bad=bad))) == bad.count == 1
    # they are texts to be answered all the same
    assert len(list(read_tagged(path, need_tags=False))) == 2
    rows = [
        {"text": "good", **PRODIGY, "label": "POS", "answer": "accept"},
        {"text": "bad", **PRODIGY, "label": "POS", "answer": answer},
    ]
    write(path, rows)
    with pytest.raises(ExampleError, match=message):
        list(read_examples(path, need_label=True))
    assert len(list(read_examples(path, need_label=False))) == 2
    found = read_examples(path, Columns(label="answer"), need_label=True)
    assert [each.label for each in found] == ["accept", answer]
    # a column of answers is one as any other where nothing else is of Prodigy
    write(path, [{key: row[key] for key in ("text", "label", "answer")} for row in rows])
    assert [each.label for each in read_examples(path, need_label=True)] == ["POS", "POS"]


def test_a_list_of_one_label_may_be_a_class(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "good", "label": ["pos"]},
        {"text": "bad", "label": ["neg"]},
    ]
    path = write(tmp_path / "a.jsonl", rows)
    found = recognise(path)
    assert found.task == "multi-label"
    assert found.reason.endswith("one in each, which --task classify learns as classes")
    assert [each.label for each in read_examples(path, need_label=True)] == ["pos", "neg"]
    write(path, [*rows, {"text": "both", "label": ["pos", "neg"]}])
    assert recognise(path).reason == "'label' holds lists of labels"
    with pytest.raises(ExampleError, match=r":3: 2 labels instead of one; .*--task multi-label"):
        list(read_examples(path, need_label=True))
    write(path, [*rows, {"text": "none", "label": []}])
    with pytest.raises(ExampleError, match=r":3: no label"):
        list(read_examples(path, need_label=True))


def test_options_of_prodigy_are_classes(tmp_path: Path) -> None:
    options = [{"id": "POS", "text": "positive"}, {"id": "NEG", "text": "negative"}]
    rows: list[dict[str, Any]] = [
        {"text": text, **PRODIGY, "options": options, "accept": [label], "answer": "accept"}
        for text, label in (("good", "POS"), ("bad", "NEG"))
    ]
    path = write(tmp_path / "a.jsonl", rows)
    for columns in (Columns(label="accept"), Columns()):
        assert recognise(path, columns).task == "multi-label"
        found = read_examples(path, columns, need_label=True)
        assert [each.label for each in found] == ["POS", "NEG"]
    # whether an annotation was accepted is no class of a text unless that is asked for
    write(path, [{key: row[key] for key in ("text", *PRODIGY, "answer")} for row in rows])
    with pytest.raises(ExampleError, match=r"no column that looks like the label; .*'answer'"):
        recognise(path)


def test_a_folder_of_brat_holds_no_classes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(TEXT + "\n")
        (tmp_path / f"{name}.ann").write_text("T1\tPER 0 4\tAnna\n")
    with pytest.raises(ExampleError, match=r"annotations of brat, not classes: 'a\.ann', 'b\.ann'"):
        recognise(tmp_path)
