from __future__ import annotations

import gzip
import io
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from pyarrow import parquet

from bertsmith.core.errors import ExampleError
from bertsmith.tasks.config import Reading
from bertsmith.tasks.tag import TAG
from bertsmith.text import opening
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.config import Columns
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.formats.conll import read_tagged
from bertsmith.text.examples.reading import Example, Kind, read_examples
from bertsmith.text.examples.tagged import Entity

Read = list[tuple[str, str | None, str | None]]


def read(path: Path, columns: Columns = Columns(), *, need_label: bool = True) -> Read:  # noqa: B008
    found = read_examples(path, columns, need_label=need_label)
    return [(example.text, example.text_pair, example.label) for example in found]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_csv_with_quotes_and_line_ends(tmp_path: Path) -> None:
    text = '\ufefftext,label\r\n"Good, he said:\r\n""very""",1\r\n\r\nBad,0\r\n'
    path = write(tmp_path, "a.csv", text)
    found = list(read_examples(path, need_label=True))
    first = Example(
        text='Good, he said: "very"', text_pair=None, label="1", source=str(path), line=2
    )
    assert found[0] == first
    assert found[1].line == 5


def test_tsv_knows_no_quotes(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 'sentence\tlabel\n"Half a quote\tno\n5" pipe\tyes\n')
    assert read(path) == [('"Half a quote', None, "no"), ('5" pipe', None, "yes")]


def test_jsonl_labels_keep_what_was_written(tmp_path: Path) -> None:
    labels = ["pos", " 1.0", 1, 2.0, 2.5, True, "01"]
    rows = [json.dumps({"review": "x", "target": label}) for label in labels]
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(rows).encode()))
    assert [label for *_, label in read(path)] == ["pos", "1.0", "1", "2", "2.5", "true", "01"]


def test_keys_that_the_first_record_lacks_are_columns(tmp_path: Path) -> None:
    # exporters leave out what is null: the pair was ignored, and the label could not be found
    rows = [{"id": 1, "sentence1": "x"}, {"sentence1": "y", "sentence2": "z", "label": "pos"}]
    path = write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)))
    found = list(read_examples(path, need_label=True, bad=BadRows("skip")))
    assert [(result.text, result.text_pair, result.label) for result in found] == [
        ("y", "z", "pos")
    ]
    with pytest.raises(ExampleError, match="no label; give every row a label") as caught:
        read(write(tmp_path, "b.jsonl", '{"text": "x"}\n{"text": "y", "label": "a"}\n'))
    assert caught.value.line == 1


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = {"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": [1.0, 0.0], "id": [7, 8]}
    parquet.write_table(pa.table(rows), path)
    assert read(path) == [("a", "c", "1"), ("b", "d", "0")]
    assert [example.line for example in read_examples(path, need_label=True)] == [1, 2]


def test_nan_is_no_class(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "one,a\ntwo,b\nthree,nan\n" * 3)
    assert recognise(path).reason.endswith("'label' holds 2 classes")
    with pytest.raises(ExampleError, match=r"a\.csv:4: no label \(nan\); give every row a label"):
        list(read_examples(path, need_label=True))


def test_fields_inside_columns_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    notes = [{"note": "a", "by": {"ward": "x"}}, {"note": "b", "by": None}, None]
    rows = {"id": [7, 8, 9], "record": notes, "record.note": ["c", "d", "e"]}
    parquet.write_table(pa.table({"id": rows["id"], "record": notes}), path)
    columns = Columns(text="record.note", label="record.by.ward")
    assert next(read_examples(path, columns, need_label=True)).label == "x"
    with pytest.raises(ExampleError, match=r"parquet:2: no label"):
        list(read_examples(path, columns, need_label=True))
    parquet.write_table(pa.table(rows), path)
    assert [row.text for row in read_examples(path, columns, need_label=False)] == ["c", "d", "e"]


def test_threads_of_pyarrow_do_not_touch_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that still holds bytes of it when the process ends aborts it."""
    readers = set()

    class Watched(io.FileIO):
        def readinto(self, *buffer: Any) -> int | None:  # noqa: ANN401
            readers.add(threading.get_ident())
            return super().readinto(*buffer)

        def readall(self) -> bytes:
            readers.add(threading.get_ident())
            return super().readall()

    monkeypatch.setattr(opening, "open_file_or_pipe", lambda path: io.BufferedReader(Watched(path)))
    path = tmp_path / "a.parquet"
    rows = {"text": [f"text {n}" for n in range(5000)], "label": ["a", "b"] * 2500}
    parquet.write_table(pa.table(rows), path)
    assert len(read(path)) == 5000
    assert readers == {threading.get_ident()}


def test_classes_of_parquet_have_the_names_that_datasets_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    kind = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    features = {
        "text": {"dtype": "string", "_type": "Value"},
        "label": kind,
        "stars": {"dtype": "int64", "_type": "Value"},
        "several": {"feature": kind, "_type": "Sequence"},
        "lists": [kind],
    }
    told = {"huggingface": json.dumps({"info": {"features": features}})}
    rows = {
        "text": ["x", "y", "z"],
        "label": [1, 0, -1],
        "stars": [1, 0, 1],
        "several": [[1, 0], [], [1]],
        "lists": [[0], [1], []],
    }
    parquet.write_table(pa.table(rows).replace_schema_metadata(told), path)
    assert [each.label for each in read_examples(path, need_label=False)] == ["pos", "neg", None]
    with pytest.raises(ExampleError, match=r"parquet:3: no label"):
        list(read_examples(path, need_label=True))
    columns = Columns(label="stars")
    assert [each.label for each in read_examples(path, columns, need_label=True)] == ["1", "0", "1"]
    for name, found in (
        ("several", [("pos", "neg"), (), ("pos",)]),
        ("lists", [("neg",), ("pos",), ()]),
    ):
        several = read_examples(path, Columns(label=name), need_label=True, kind="classes")
        assert [each.labels for each in several] == found
    for damaged in ("", "[1]", '{"info": 3}', '{"info": {"features": {"label": {"names": 4}}}}'):
        table = pa.table(rows).replace_schema_metadata({"huggingface": damaged})
        parquet.write_table(table, path)
        assert [each.label for each in read_examples(path, need_label=True)] == ["1", "0", "-1"]


def test_tags_of_parquet_have_the_names_that_datasets_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    kind = {"names": ["O", "B-PER"], "_type": "ClassLabel"}
    told = {"info": {"features": {"ner_tags": {"feature": kind, "_type": "List"}}}}
    rows = pa.table({"tokens": [["Ann", "ran"], ["Bob"]], "ner_tags": [[1, 0], [1]]})
    parquet.write_table(rows.replace_schema_metadata({"huggingface": json.dumps(told)}), path)
    assert recognise(path).task == "tag"
    found = read_tagged(path, need_tags=True)
    assert [each.tags for each in found] == [("B-PER", "O"), ("B-PER",)]
    assert TAG.reader.layout(path, Reading()) == "PARQUET: entities in BIO2"
    asked = TAG.reader.unlabelled(path, Reading())
    assert [(each.text, each.words, each.line) for each in asked] == [
        ("Ann ran", ((0, 3), (4, 7)), 1),
        ("Bob", ((0, 3),), 2),
    ]
    parquet.write_table(pa.table({"review": ["Ann ran.", "Bob"], "stars": [1, 2]}), path)
    assert [each.text for each in TAG.reader.unlabelled(path, Reading())] == ["Ann ran.", "Bob"]
    marks = [[{"start": 0, "end": 3, "label": "PER"}], []]
    parquet.write_table(pa.table({"text": ["Ann  ran.", "Bob"], "entities": marks}), path)
    assert recognise(path).task == "tag"
    first, second = read_tagged(path, need_tags=True)
    assert (first.text, first.entities, second.entities) == (
        "Ann  ran.",
        (Entity(0, 3, "PER"),),
        (),
    )


def test_decimal_numbers_of_parquet(tmp_path: Path) -> None:
    """Databases write them for numbers with a point."""
    path, labels = tmp_path / "a.parquet", [Decimal("1.50"), Decimal("2.00"), Decimal("-3.25")]
    parquet.write_table(pa.table({"text": ["a", "b", "c"], "label": labels}), path)
    assert [label for *_, label in read(path)] == ["1.5", "2", "-3.25"]
    found = read_examples(path, need_label=True, kind="number")
    assert [example.number for example in found] == [1.5, 2.0, -3.25]
    assert recognise(path).task == "regression"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Text,Label,n", ("a", None, "b")),
        ("category,content,n", ("b", None, "a")),
        ("label,sentence1,sentence2", ("b", "c", "a")),
        ("Quality,#1 String,#2 String", ("b", "c", "a")),
        ("question,sentence,label", ("a", "b", "c")),
        ("question,class,n", ("a", None, "b")),
        ("text,text_pair,label", ("a", "b", "c")),
        ("text,question,label", ("a", None, "c")),
    ],
)
def test_columns_are_found_by_their_usual_names(
    tmp_path: Path, header: str, expected: tuple[str, str | None, str]
) -> None:
    assert read(write(tmp_path, "a.csv", f"{header}\na,b,c\n")) == [expected]


def test_columns_by_option(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "question,sentence,Art\na,b,c\n")
    assert read(path, Columns(label="art")) == [("a", "b", "c")]
    assert read(path, Columns(text="sentence", label="Art")) == [("b", None, "c")]
    assert read(path, Columns(text_pair="question", label="Art")) == [("b", "a", "c")]
    assert read(path, need_label=False) == [("a", "b", None)]


def test_keys_inside_objects_are_named_with_dots(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [
        {"id": n, "review": {"body": f"text {n}", "by": {"stars": n}}, "a.b": "c"} for n in (1, 2)
    ]
    lacking = {"id": 3, "review": {"body": "text 3", "by": None}, "a.b": "c"}
    path.write_text("\n".join(map(json.dumps, [*rows, lacking])), encoding="utf-8")
    columns = Columns(text="review.body", label="review.by.stars", id="a.b")
    with pytest.raises(ExampleError, match=r"the id 'c' is used"):
        list(read_examples(path, columns, need_label=True))
    columns = Columns(text="review.body", label="review.by.stars")
    found = list(read_examples(path, columns, need_label=False))
    assert [(row.text, row.label) for row in found] == [
        ("text 1", "1"), ("text 2", "2"), ("text 3", None),
    ]  # fmt: skip
    with pytest.raises(ExampleError, match=r"a\.jsonl:3: no label"):
        list(read_examples(path, columns, need_label=True))
    with pytest.raises(ExampleError, match=r"no column 'review\.text'; name one of its columns:"):
        list(read_examples(path, Columns(text="review.text"), need_label=True))


def test_columns_by_number_say_that_there_is_no_header(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "gj04\t1\t\tGood.\ngj05\t0\t*\tBad.\n")
    assert read(path, Columns(text="3", label="1")) == [("Good.", None, "1"), ("Bad.", None, "0")]
    path = write(tmp_path, "b.tsv", "label\ttext\n1\tGood.\n")
    assert read(path, Columns(text="1", label="0")) == [("Good.", None, "1")]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "SMSCollection"])
def test_two_columns_without_header(tmp_path: Path, name: str, swapped: bool) -> None:
    rows = [("spam" if n % 4 == 1 else "ham", f"message {n}") for n in range(12)]
    comma = "," if name == "a.csv" else "\t"
    lines = [comma.join(reversed(row) if swapped else row) for row in rows]
    found = read(write(tmp_path, name, "\n".join(lines)))
    assert found == [(text, None, label) for label, text in rows]


def test_an_unusual_header_is_not_taken_for_a_row(tmp_path: Path) -> None:
    rows = [f"{('ja', 'nein')[n % 2]}\ttext {n}" for n in range(30)]
    path = write(tmp_path, "a.tsv", "\n".join(["Urteil\tSatz", *rows]))
    with pytest.raises(ExampleError, match="'Urteil', 'Satz'"):
        read(path)
    assert len(read(path, Columns(text="Satz", label="Urteil"))) == 30


@pytest.mark.parametrize("kind", get_args(Kind))
def test_labels_that_are_not_needed_may_be_bad(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"query": "x", "passage": "y", "label": label} for label in ({"a": 1}, "-1", ["", 2])]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert len(list(read_examples(path, need_label=False, kind=kind))) == 3
    with pytest.raises(ExampleError):
        list(read_examples(path, need_label=True, kind=kind))


def test_a_label_may_be_missing_unless_needed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "x", "label": null}\n{"text": "y"}\n')
    assert read(path, need_label=False) == [("x", None, None), ("y", None, None)]
    with pytest.raises(ExampleError, match=r"a\.jsonl:1: no label; give every row a label"):
        read(path)


def _bad_files() -> Iterator[tuple[str, bytes, int | None, str]]:
    yield "empty.csv", b"", None, "holds no examples"
    yield "head.tsv", b"text\tlabel\n", None, "holds no examples"
    yield "kind.docx", b"x", None, "is of an unknown kind"
    yield "text.csv", b"text,label\nx,1\n ,1\n", 3, "the text is empty"
    yield "pair.csv", b"sentence1,sentence2,label\nx,,1\n", 2, "the second text is empty"
    yield "label.csv", b"text,label\nx,1\ny,\n", 3, "no label"
    yield "nolabel.csv", b"text,length\nx,1\n", 1, "no column that looks like the label"
    yield "notext.jsonl", b'{"words": "x", "label": 1}\n', 1, "looks like the text"
    yield "ragged.tsv", b"text\tlabel\nx\t1\ny\t0\tz\n", 3, "3 columns where the first row has 2"
    yield "ragged.csv", b"text,label\nx, y,1\n", 2, "line ends in quotes"
    yield "short.csv", b"text,label\nx\n", 2, "1 column"
    yield "zero.csv", b"text,label\nx\0y,1\n" + b"x,1\n" * 9, 2, "a zero byte in the text"
    yield "zero.jsonl", b'{"text": "a\\u0000", "label": 1}', 1, "a zero byte"
    yield "type.jsonl", b'{"text": ["x"], "label": 1}', 1, "the text is not a string"
    yield "kind.jsonl", b'{"text": "x", "label": [[1]]}', 1, "neither string nor number"
    yield "latin.tsv", b"text\tlabel\ncaf\xe9\t1\n", 2, "--encoding"
    yield "gone.tsv.gz", gzip.compress(b"text\tlabel\n" * 99)[:-5], None, "damaged"


@pytest.mark.parametrize(
    ("name", "data", "line", "message"), [pytest.param(*bad, id=bad[0]) for bad in _bad_files()]
)
def test_a_bad_file_is_named_with_line_and_remedy(
    tmp_path: Path, name: str, data: bytes, line: int | None, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ExampleError) as caught:
        read(path)
    assert message in str(caught.value)
    assert (caught.value.where, caught.value.line) == (path, line)
    assert caught.value.remedy


def test_tr_is_not_named_for_an_escaped_zero_byte(tmp_path: Path) -> None:
    for name, rows, remedy in (
        ("a.csv", "text,label\na\0,1\n", r"remove it: tr -d '\000'"),
        ("a.jsonl", '{"text": "a\\u0000", "label": 1}\n', "remove it"),
    ):
        with pytest.raises(ExampleError) as caught:
            read(write(tmp_path, name, rows))
        assert caught.value.remedy == remedy


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(text="body"), "no column 'body'; name one of its columns: 'text', 'label'"),
        (Columns(label="7", text="0"), "no column '7'; its 2 columns are numbered from 0"),
        (Columns(label="9" * 5000, text="0"), "no column '9999"),
        (Columns(text="1"), "no column that looks like the label"),
        (Columns(label="0"), "no column that looks like the text"),
        (Columns(text="text", label="0"), "column 0, counted from 0, is named for text and label"),
    ],
)
def test_an_option_that_names_no_column(tmp_path: Path, columns: Columns, message: str) -> None:
    path = write(tmp_path, "a.csv", "text,label\nx,1\n")
    with pytest.raises(ExampleError, match=message):
        read(path, columns)
    with pytest.raises(ExampleError, match="cannot be read"):
        read(tmp_path / "none.csv", columns)


REAL = {
    "glue/SST-2/train.tsv": (67_349, 2, False),
    "glue/MRPC/train.tsv": (3_668, 2, True),
    "glue/RTE/train.tsv": (2_490, 2, True),
    "glue/QNLI/dev.tsv": (5_463, 2, True),
    "sms-spam/SMSSpamCollection": (5_574, 2, False),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files(data_folder: Path, name: str) -> None:
    found = read(data_folder / name)
    labels = {label for *_, label in found}
    assert (len(found), len(labels), found[0][1] is not None) == REAL[name]
