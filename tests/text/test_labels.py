"""Labels of every kind, and where they stand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.config import Columns
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.formats.squad import read_questions
from bertsmith.text.examples.reading import Example, Kind, describe_examples, read_examples


def read(path: Path, kind: Kind, **columns: object) -> list[Example]:
    return list(read_examples(path, Columns.from_dict(columns), need_label=True, kind=kind))


def test_several_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    cells = ["a|b", " b | a", "", '["a", "b c"]', "[]", "a|a", "1|0", """['a', "it's"]"""]
    path.write_text("text\tlabels\n" + "".join(f"x\t{cell}\n" for cell in cells))
    found = read(path, "classes")
    expected = [("a", "b"), ("b", "a"), (), ("a", "b c"), (), ("a",), ("1", "0")]
    expected.append(("a", "it's"))
    assert [result.labels for result in found] == expected
    assert all(result.label is None for result in found)
    lines = tmp_path / "a.jsonl"
    values: list[object] = [["a", 1], [], "a|b", 3, True]
    lines.write_text("\n".join(json.dumps({"text": "x", "labels": value}) for value in values))
    found = read(lines, "classes")
    assert [result.labels for result in found] == [("a", "1"), (), ("a", "b"), ("3",), ("true",)]


def test_nan_in_a_column_of_several_labels_is_no_label(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\nx,a|b\ny,NaN\n")
    with pytest.raises(ExampleError, match=r"a\.csv:3: no label \(NaN\); give every row a label"):
        read(path, "classes")
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"text": "x", "label": ["a"]}\n{"text": "y", "label": NaN}\n')
    with pytest.raises(ExampleError, match=r"a\.jsonl:2: no label \(nan\); give every row a label"):
        read(lines, "classes")
    path.write_text("text,label\nx,a|nan|b\n")
    with pytest.raises(ExampleError, match=r"a\.csv:2: an empty label among several \(nan\); lea"):
        read(path, "classes")


def test_labels_as_stack_exchange_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    for cells in (["<c#><.net>", "<a-b>", "<c#>"], ["|c#|.net|", "|a-b|", "|c#|"]):
        path.write_text("text\tlabel\n" + "".join(f"x\t{cell}\n" for cell in cells))
        assert recognise(path).task == "multi-label"
        found = read(path, "classes")
        assert [each.labels for each in found] == [("c#", ".net"), ("a-b",), ("c#",)]
    # a class between brackets, or a mark of mathematics, is as it is written
    path.write_text("text\tlabel\nx\t<a>\ny\t<b>\n")
    assert recognise(path).task == "classify"
    path.write_text("text\tlabel\nx\t<a><\ny\t|\n")
    with pytest.raises(ExampleError, match="an empty label among several"):
        read(path, "classes")


def test_a_column_a_label(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,comment,rude,loud\n1,x,0,1\n2,y,0,0\n3,z,1.0,TRUE\n")
    found = read(path, "classes", labels=["rude", "Loud"])
    assert [result.labels for result in found] == [("Loud",), (), ("rude", "Loud")]
    with pytest.raises(ExampleError, match="no column 'kind'; name one of its columns: 'id', 'com"):
        read(path, "classes", labels=["rude", "kind"])
    with pytest.raises(ConfigError, match="columns of 0 and 1 are for examples with several"):
        read(path, "class", labels=["rude", "loud"])
    with pytest.raises(ConfigError, match="both a label's column and several"):
        Columns(label="rude", labels=("loud",))


def test_columns_of_labels_are_marked_or_answered(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    expected = [("loud",), (), ("rude", "loud")]
    for rows in ("a,,x\nb,,\nc,X,x", "a,no,Yes\nb,NO,no\nc,yes,yes"):
        path.write_text(f"text,rude,loud\n{rows}\n")
        found = read(path, "classes", labels=["rude", "loud"])
        assert [result.labels for result in found] == expected
    # an empty cell among others is a label that is not known
    for rows in ("a,0,1\nb,,1\n", "a,x,x\nb,,1\n"):
        path.write_text(f"text,rude,loud\n{rows}\n")
        with pytest.raises(ExampleError, match=r"'rude' is '.?', neither 0 nor 1"):
            read(path, "classes", labels=["rude", "loud"])


def test_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,score\nx,3\ny, -0.5 \nz,1e-3\n")
    found = read(path, "number")
    assert [result.number for result in found] == [3.0, -0.5, 0.001]
    assert [result.label for result in found] == ["3", "-0.5", "1e-3"]


def test_numbers_with_decimal_commas(tmp_path: Path) -> None:
    """As Excel writes them in many countries, with semicolons between the cells."""
    path = tmp_path / "a.csv"
    path.write_text("text;label\na;36,8\nb;-0,125\nc;1234,567\nd;40\n", encoding="utf-8")
    assert [result.number for result in read(path, "number")] == [36.8, -0.125, 1234.567, 40.0]


def test_a_comma_that_may_part_thousands_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text;label\na;36,8\nb;1,234\n", encoding="utf-8")
    with pytest.raises(ExampleError, match=r"a\.csv:3: the label '1,234' is 1\.234 or 1234"):
        list(read_examples(path, need_label=True, kind="number"))


@pytest.mark.parametrize("written", ["1_000", "1_0.5", "_1"])
def test_a_number_with_an_underscore_is_none(tmp_path: Path, written: str) -> None:
    """Python alone reads 1_000 as 1000; in a table it is a range, or an identifier."""
    path = tmp_path / "a.csv"
    path.write_text(f"text,label\nx y,2.5\nz,{written}\n", encoding="utf-8")
    with pytest.raises(ExampleError, match=rf"a\.csv:3: the label is not a number: '{written}'"):
        list(read_examples(path, need_label=True, kind="number"))


def test_pairs_to_rank(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("qid\tquery\tpassage\trelevance\n1\tq\ta\t2\n1\tq\tb\t0\n2\tq\tc\t1\n")
    found = read(path, "rank")
    assert [(result.group, result.number) for result in found] == [
        ("1", 2.0),
        ("1", 0.0),
        ("2", 1.0),
    ]
    path.write_text("query\tdocument\tlabel\nq\ta\t1\nr\tb\t0\n")
    assert [item.group for item in read(path, "rank")] == ["q", "r"]
    path.write_text("text\tlabel\nq\t1\n")
    with pytest.raises(ExampleError, match="holds single texts, but ranking needs pairs"):
        read(path, "rank")


def test_a_label_before_the_text(tmp_path: Path) -> None:
    path = tmp_path / "train.label"
    path.write_bytes("LOC:city Where is K\u00f6ln ?\n\nHUM:ind\tWho ?\r\n".encode("iso-8859-1"))
    found = read(path, "class", encoding="iso-8859-1")
    assert [(result.label, result.text, result.line) for result in found] == [
        ("LOC:city", "Where is K\u00f6ln ?", 1),
        ("HUM:ind", "Who ?", 3),
    ]
    found = read(path, "class", label_until=":", encoding="iso-8859-1")
    assert [result.label for result in found] == ["LOC", "HUM"]
    with pytest.raises(ExampleError, match=r"train\.label:1: is not UTF-8: byte 0xF6"):
        read(path, "class")
    path = path.rename(tmp_path / "train.txt")
    path.write_bytes(b"A x\x81\n")
    with pytest.raises(ExampleError, match="is not cp1252: byte 0x81; name another"):
        read(path, "class", layout="label-first", encoding="windows-1252")


def test_a_file_a_class(tmp_path: Path) -> None:
    (tmp_path / "rt-polarity.neg").write_text("bad .\n\nworse .\n")
    (tmp_path / "rt-polarity.pos").write_text("good .\n")
    (tmp_path / "README.txt").write_text("about")
    found = read(tmp_path, "class")
    assert [(result.label, result.text, result.line) for result in found] == [
        ("neg", "bad .", 1),
        ("neg", "worse .", 3),
        ("pos", "good .", 1),
    ]
    assert found[0].source == str(tmp_path / "rt-polarity.neg")


def test_texts_that_are_called_like_notes_are_texts(tmp_path: Path) -> None:
    """Mails are often saved by their subject; what is about the data has the name alone."""
    texts = ("license renewal.txt", "Copying machine.txt", "readme_later.txt", "Licensed.txt")
    notes = ("README", "readme.txt", "README-en.md", "LICENSE-2.0.txt", "Licence.md", "COPYING.gz")
    for label in ("office", "other"):
        (tmp_path / label).mkdir()
        for name in (*texts, *notes):
            (tmp_path / label / name).write_text(f"{label} {name}")
    found = [example.text for example in read(tmp_path, "class")]
    assert found == [f"{label} {name}" for label in ("office", "other") for name in sorted(texts)]


def test_a_folder_a_class(tmp_path: Path) -> None:
    for label, text in (("pos", "good\nfilm"), ("neg", "bad film")):
        (tmp_path / label).mkdir()
        (tmp_path / label / "0_9.txt").write_text(text)
        (tmp_path / label / "1_7.txt").write_text(f"{text} !")
    found = read(tmp_path, "class")
    assert [(result.label, result.text) for result in found] == [
        *(("neg", "bad film"), ("neg", "bad film !")),
        *(("pos", "good film"), ("pos", "good film !")),
    ]


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["alt.atheism/1", "sci.space/1", "a_b c/1"], ["a_b c", "alt.atheism", "sci.space"]),
        (["sci.med/1", "sci.space/1"], ["sci.med", "sci.space"]),
        (["alt.atheism.txt", "sci.space.txt"], ["alt.atheism", "sci.space"]),
        (["alt.atheism", "sci.space"], ["alt.atheism", "sci.space"]),
        (["a.txt", "a.a.TXT"], ["a.a", "a"]),
        (["rt-polarity.pos", "rt-polarity.neg"], ["neg", "pos"]),
        (["train_pos_1.txt", "train_neg_1.txt"], ["neg", "pos"]),
        (["license/1", "patent/1"], ["license", "patent"]),
        (["class_1.txt", "class_10.txt"], ["1", "10"]),
    ],
)
def test_classes_are_named_as_written(tmp_path: Path, names: list[str], labels: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    assert [example.label for example in read(tmp_path, "class")] == labels


def test_named_folders_are_read_whatever_lies_beside_them(tmp_path: Path) -> None:
    for name in ("pos/1", "neg/1", "unsup/1", "a.feat", "b.feat", "c.txt", "d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    columns = Columns(classes=("neg", "pos"))
    found = list(read_examples(tmp_path, columns, need_label=True))
    assert [example.label for example in found] == ["neg", "pos"]
    assert recognise(tmp_path, columns).task == "classify"
    described = describe_examples(tmp_path, columns, "class", need_label=True)
    assert described == "a folder per class, named after it: 2 classes"


def test_a_folder_of_json_holds_no_texts(tmp_path: Path) -> None:
    for name in ("high/1.txt", "middle/1.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text('{"article": "a",\n "questions": []}\n')
    with pytest.raises(ExampleError, match=r"high/1\.txt:1: holds an object of JSON, not a text"):
        read(tmp_path, "class")
    (tmp_path / "high" / "1.txt").write_text("{x} is a set\n")
    (tmp_path / "middle" / "1.txt").write_text("{\n")
    assert [example.text for example in read(tmp_path, "class")] == ["{x} is a set", "{"]


def test_a_class_without_texts_is_named(tmp_path: Path) -> None:
    for name, text in (("a.txt", "x\n"), ("b.txt", "\n"), ("c.txt", "y\n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(ExampleError, match=r"b\.txt: holds no text, so the class 'b' has no exam"):
        read(tmp_path, "class")
    bad = BadRows("skip")
    found = read_examples(tmp_path, need_label=True, bad=bad)
    assert [example.label for example in found] == ["a", "c"]
    assert bad.count == 1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "holds nothing, so no classes"),
        (["a.txt"], "holds only 'a.txt', so no classes"),
        (
            ["a/1", "b/2", "notes.txt"],
            "holds folders, one per class, but also the file ",
        ),
        (["a.txt", "b.txt", "c/d"], "holds files, one per class, but also the folder 'c'"),
        (["train.txt", "dev.txt"], "the splits of a data set, not classes: 'dev.txt', 'train.txt'"),
        (["train/pos/1", "test/pos/1"], "the splits of a data set, not classes: 'test', 'train'"),
        (
            ["pos/1", "neg/1", "a.feat", "b.feat", "c.txt"],
            "may hold a folder per class, 'neg', 'pos', or a file, 'a.feat', 'b.feat', 'c.txt'; "
            "name the folders: --classes neg,pos; or move the rest",
        ),
        (
            ["config.json", "model.safetensors", "vocab.txt"],
            "is a model folder, not one of classes; the model comes first",
        ),
        (
            ["train/1", "test/1", "readme.txt", "words.vocab", "more.txt"],
            "the splits of a data set, not classes: 'test', 'train'; give one of them",
        ),
        (["a.csv", "b.csv"], "holds tables, not one file of texts per class: 'a.csv', 'b.csv'"),
        (["a/1", "b/c/2"], "the folder of class 'b' holds folders: 'c'"),
        (
            ["data-00000-of-00001.arrow", "dataset_info.json", "state.json"],
            r"holds a data set saved by Hugging Face's `datasets`; .*to_parquet",
        ),
        (
            ["dataset_dict.json", "train/data-00000-of-00001.arrow", "train/state.json"],
            r"holds a data set saved by Hugging Face's `datasets`; .*to_parquet",
        ),
    ],
)
def test_a_folder_without_classes(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x\n")
    with pytest.raises(ExampleError, match=message):
        read(tmp_path, "class")
    with pytest.raises(ExampleError, match=r"none: cannot be read: No such file"):
        read(tmp_path / "none", "class")


@pytest.mark.parametrize("closed", ["b", "."])
def test_a_folder_of_a_class_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text("x\n")
    listed, refused = Path.iterdir, str(tmp_path / closed)

    def iterdir(path: Path) -> Iterator[Path]:
        if str(path) == refused:
            raise PermissionError(13, "Permission denied", refused)
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    message = f"^{refused}: cannot be read: Permission denied; get permission to read it$"
    with pytest.raises(ExampleError, match=message):
        read(tmp_path, "class")


def test_an_arrow_stream_is_named_with_a_remedy(tmp_path: Path) -> None:
    path, table = tmp_path / "data.arrow", pa.table({"text": ["x"], "label": ["a"]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    message = r"is an Arrow stream, not text; .*to_parquet"
    with pytest.raises(ExampleError, match=message):
        recognise(path)
    with pytest.raises(ExampleError, match=message):
        list(read_questions(path, need_answers=False))
