"""What is said of tables that are none, or not as they should be."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.text.config import Columns
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.label_lists import label_separator
from bertsmith.text.examples.reading import read_examples
from bertsmith.text.opening import TextFile
from bertsmith.text.tables import comma_rows

TEXTS = [f"text number {n} about it all" for n in range(20)]
TWO = ["pos", "neg"] * 10


def table(header: str, labels: list[str], between: str = ",") -> bytes:
    rows = [header, *(f"{text}{between}{label}" for text, label in zip(TEXTS, labels, strict=True))]
    return ("\n".join(rows) + "\n").encode()


WRONG = [
    ("a.xlsx", b"PK\x03\x04" + b"\0" * 99, "is an Excel file, not text; save the sheet as CSV"),
    ("a.csv", b"PK\x03\x04" + b"\0" * 99, "is a zip archive, not text; unpack it and give the"),
    ("a.xls", b"\xd0\xcf\x11\xe0" + b"\0" * 99, "is an old Excel or Word file"),
    ("a.zip", b"PK\x03\x04" + b"\0" * 99, "is a zip archive, not text; unpack it"),
    (
        "a.csv",
        gzip.compress(b"text,label\n", mtime=0),
        "is compressed by gzip, not text; rename it to end",
    ),
    ("a.tsv", b"PAR1\x15\x04", "is a Parquet file, not text; rename it to end in .parquet"),
    ("a.pdf", b"%PDF-1.4\n", "is a PDF, not text"),
    ("a.csv", b"<!doctype html>\n<html>", "is a web page, not text; download the file itself"),
    ("a.tsv", table("text,label", TWO), "has no tabs, so one column only, 'text,label'; if its"),
    ("a.csv", table("text,label", [""] * 20), "no row has a label in 'label'; name another column"),
    (
        "a.csv",
        table("text;score", [f"{n},5" for n in range(20)], ";"),
        "with a decimal comma",
    ),
    ("a.csv", table("text;label", ["13,12", "18"] * 10, ";"), "decimal comma or several labels"),
    ("a.jsonl", b'["a", "b"]\n["c", "d"]\n', 'write a pair as an object: {"text": "...", "text_p'),
    ("a.csv", b"{\\rtf1\\ansi a}", "is rich text (RTF), not text; save it as text"),
    ("a.jsonl", b'[{"text": "a", "label": "b"}]', "a list, not a JSON object; each line must"),
    ("a.jsonl", b'{\n"text": "a"\n}\n', "a.jsonl:1: not JSON"),
    ("a.json", b'x{"text": "a", "label": "b"}\n{"text": "c", "label": "d"}', "a.json:1: not JSON"),
    ("a.csv", table("text,score", ["1,5"] * 20), "3 columns where the first row has 2; put text"),
    ("a.csv", table("text,label", ['"a,b"', '"b"', '"c,a"', '"c"'] * 5), "several labels or one "),
    (
        "a.csv",
        table("text,labels", ['"a, b"', '"c, d"'] * 10),
        "several labels or one with a comma",
    ),
    (
        "a.csv",
        b"text,rude,loud\nx,0,1\ny,1,1\n",
        "if a label of 0 or 1 each has a column, pass --label-columns rude,loud; else name it",
    ),
    ("a.csv", b"one,two,three\n" + b"a,b,c\n" * 3, "no column that looks like the text; name it"),
    (
        "a.csv",
        b"Export,,\n,,\nid,Text,Label\n" + b"1,a gear of brass,a\n2,a new valve,b\n" * 3,
        "the text; remove the lines above its header, which seems to be 'id', 'Text', 'Label'",
    ),
    ("a.csv", b"# export\nid,text,label\n1,x,a\n", "; or remove what is above its header"),
]


@pytest.mark.parametrize(("name", "data", "message"), WRONG)
def test_what_is_said(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ExampleError) as caught:
        recognise(tmp_path / name)
    assert message in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("between", [";", "\t", "|"])
def test_other_separators_of_a_csv(tmp_path: Path, between: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(table(f"text, all{between}label", TWO, between))
    columns = Columns(text="text, all")
    assert [row.label for row in read_examples(path, columns, need_label=True)] == TWO


@pytest.mark.parametrize("stated", ["sep={}", "SEP={}", '"sep={}"', "sep={}\r"])
@pytest.mark.parametrize("between", [",", ";", "\t"])
def test_excels_first_line_states_the_separator(tmp_path: Path, stated: str, between: str) -> None:
    path = tmp_path / "a.csv"
    rows = table(f"text{between}label", TWO, between)
    path.write_bytes(stated.format(between).encode() + b"\n" + rows)
    assert recognise(path).task == "classify"
    found = list(read_examples(path, need_label=True))
    assert [(row.text, row.label) for row in found] == list(zip(TEXTS, TWO, strict=True))
    # lines are those of the file
    assert found[0].line == 3


@pytest.mark.parametrize("sign", [",", ";"])
def test_quotes_after_a_blank_are_quotes(tmp_path: Path, sign: str) -> None:
    """They were of the texts, and a comma inside them made another column."""
    path = tmp_path / "a.csv"
    rows = [
        f'{label}{sign} "{text}{sign} it said ""so"""'
        for label, text in zip(TWO, TEXTS, strict=True)
    ]
    path.write_text(f"label{sign} text\n" + "\n".join(rows) + "\n", encoding="utf-8")
    assert recognise(path).task == "classify"
    found = list(read_examples(path, need_label=True))
    assert [(row.label, row.text) for row in found] == [
        (label, f'{text}{sign} it said "so"') for label, text in zip(TWO, TEXTS, strict=True)
    ]
    # a quotation begins a few texts
    rows = [f"{label}{sign} {text}" for label, text in zip(TWO, TEXTS, strict=True)]
    rows[7] = f'pos{sign} "Good" it said'
    path.write_text(f"label{sign}text\n" + "\n".join(rows) + "\n", encoding="utf-8")
    assert list(read_examples(path, need_label=True))[7].text == '"Good" it said'


@pytest.mark.parametrize("sign", [",", ";"])
def test_blanks_before_quotes_are_seen_in_rows_not_lines(tmp_path: Path, sign: str) -> None:
    """Few lines have them where cells have several, or where only cells with commas are quoted."""
    path = tmp_path / "a.csv"

    def read(texts: list[str]) -> list[str]:
        rows = [f"{label}{sign}  {text}\n" for label, text in zip(TWO, texts, strict=True)]
        path.write_text(f"label{sign} text\n" + "".join(rows), encoding="utf-8")
        return [row.text.strip() for row in read_examples(path, need_label=True)]

    several = [f'"{text}{sign} it\n\nsaid"' for text in TEXTS]
    assert read(several) == [f"{text}{sign} it said" for text in TEXTS]
    few = [f"{text}{sign} it said" if n % 4 == 0 else text for n, text in enumerate(TEXTS)]
    assert read([f'"{text}"' if n % 4 == 0 else text for n, text in enumerate(few)]) == few


def test_quotes_within_a_text_are_no_quotes_after_a_blank(tmp_path: Path) -> None:
    """Of a column beside such a text the blanks in front were lost."""
    path = tmp_path / "a.csv"
    rows = [f'"He said, ""no"" {n}", {n}\n' for n in range(20)]
    path.write_text("a,b\n" + "".join(rows), encoding="utf-8")
    found = [row for _, row, _ in comma_rows(TextFile(path, ExampleError))]
    assert found[1:] == [[f'He said, "no" {n}', f" {n}"] for n in range(20)]


def test_semicolons_between_several_labels(tmp_path: Path) -> None:
    """Each set of labels was a class, ``a;b`` and ``b;a`` two of them."""
    path = tmp_path / "a.csv"
    cells = ["a;b", "b", "c; a", ""] * 5
    path.write_bytes(table("text,labels", cells))
    found = recognise(path)
    assert (found.task, found.reason) == (
        "multi-label", "'labels' holds labels with semicolons between them"
    )  # fmt: skip
    separator = label_separator(path, Columns())
    assert separator == ";"
    columns = Columns(label_separator=separator)
    rows = list(read_examples(path, columns, need_label=True, kind="classes"))
    assert [row.labels for row in rows[:4]] == [("a", "b"), ("b",), ("c", "a"), ()]
    path.write_bytes(table("text,label", cells))
    with pytest.raises(ExampleError, match=r"'a;b', several labels or one with a semicolon in it"):
        recognise(path)
    # commas are in the names that semicolons separate
    path.write_bytes(table("text,labels", ['"a, x;b"', "b", '"c;a, x"', "c"] * 5))
    assert label_separator(path, Columns()) == ";"
    # with few that recur, several labels were one as well
    path.write_bytes(table("text,labels", [f"k{n}; k{n + 1}0" for n in range(20)]))
    for detect in (recognise, lambda path: label_separator(path, Columns())):
        with pytest.raises(ExampleError, match="'k0; k10', several labels or one with a semicolon"):
            detect(path)
    # those of HTML's entities separate nothing
    path.write_bytes(table("text,labels", ["A &amp; B", "C &amp; D", "A &amp; D", "x"] * 5))
    assert recognise(path).task == "classify"
    assert label_separator(path, Columns()) == "|"
    # one in a name of its own is part of it
    path.write_bytes(table("text,label", ["R&amp;D", "sales"] * 10))
    assert recognise(path).task == "classify"
    assert label_separator(path, Columns()) == "|"


def test_judgements_of_passages_are_no_words_with_tags(tmp_path: Path) -> None:
    """A tagger was to learn the zeros of the second column."""
    path = tmp_path / "qrels.tsv"
    rows = [f"q{n // 4}\t0\td{n}\t{int(n % 4 == 0)}" for n in range(24)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    with pytest.raises(ExampleError, match="no column is given for the text"):
        recognise(path)


def test_numbered_labels_between_commas(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(table("text\tlabels", ["13,12", "18", "12", "18,13"] * 5, "\t"))
    assert recognise(path).task == "multi-label"


def test_commas_between_several_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(table("text,labels", ['"a, b"', "b", '"c,a"', ""] * 5))
    assert recognise(path).task == "multi-label"
    separator = label_separator(path, Columns())
    columns = Columns(label_separator=separator)
    found = list(read_examples(path, columns, need_label=True, kind="classes"))
    assert [row.labels for row in found[:4]] == [("a", "b"), ("b",), ("c", "a"), ()]
    # names with commas in them are classes as they are
    path.write_bytes(table("text,label", ['"Paris, France"', '"Rome, Italy"'] * 10))
    assert recognise(path).task == "classify"
    # bars part, and commas belong to the names
    path.write_bytes(table("text,labels", ['"Paris, France|x"', "x"] * 10))
    assert label_separator(path, Columns()) == "|"
    path.write_bytes(table("text,labels", ['"a, b"', "c"] * 10))
    with pytest.raises(ExampleError, match=r"state the separator of labels: --label-"):
        label_separator(path, Columns())
