"""Tables with and without a header, and columns by position."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from bertsmith.core.errors import CorpusError, ExampleError
from bertsmith.text.config import Columns
from bertsmith.text.corpus.files import Corpus
from bertsmith.text.examples.columns import USUAL_NAMES
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.reading import (
    Kind,
    describe_examples,
    read_examples,
    reading_note,
)
from bertsmith.text.headers import detect_header

NEWS = [f"{n % 4 + 1},item {n} of the news of the day" for n in range(40)]


def table(folder: Path, *lines: str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path, kind: Kind = "class", **columns: object) -> list[tuple[str, str | None]]:
    found = read_examples(path, Columns.from_dict(columns), need_label=True, kind=kind)
    return [(example.text, example.label) for example in found]


def test_a_cell_that_happens_to_be_the_number_is_no_column_name(tmp_path: Path) -> None:
    path = table(tmp_path, "1,wall street climbs", *NEWS)
    found = read(path, text="1", label="0")
    assert found[:2] == [("wall street climbs", "1"), ("item 0 of the news of the day", "1")]
    assert len(found) == 41
    assert read(path) == read(path, text="1") == read(path, label="0") == found


def test_a_ranking_without_header(tmp_path: Path) -> None:
    rows = [f"{n % 2},query {n // 4},passage {n} about it" for n in range(24)]
    path = table(tmp_path, *rows)
    columns = Columns(text="1", text_pair="2", label="0")
    found = list(read_examples(path, columns, need_label=True, kind="rank"))
    first = found[0]
    assert (first.text, first.text_pair, first.number) == ("query 0", "passage 0 about it", 0.0)
    assert len(found) == 24
    with pytest.raises(ExampleError, match="0 is '0', 1 is 'query 0', 2 is 'passage 0"):
        list(read_examples(path, Columns(), need_label=True, kind="rank"))


def test_pairs_without_header(tmp_path: Path) -> None:
    rows = [f"the cook makes dish {n}\tmakes cook {n} the dish" for n in range(4)]
    path = table(tmp_path, *rows, name="a.tsv")
    remedy = r"^(?!.*label).*two columns .* or of pairs --text-column 0 --text-pair-column 1"
    with pytest.raises(ExampleError, match=remedy):
        list(read_examples(path, Columns(), need_label=False))
    found = list(read_examples(path, Columns(text="0", text_pair="1"), need_label=False))
    assert (found[0].text, found[0].text_pair) == tuple(rows[0].split("\t"))
    with pytest.raises(ExampleError, match=r"cannot be told apart(?!.*--text-pair-column)"):
        list(read_examples(path, Columns(), need_label=True))
    with pytest.raises(ExampleError, match=r"cannot be told apart: no header \(as stated\); name "):
        list(read_examples(path, Columns(header="no"), need_label=False))


def test_positions_below_a_header(tmp_path: Path) -> None:
    path = table(
        tmp_path, "Urteil,Satz", *(f"{'ja' if n % 3 else 'nein'},Satz {n}" for n in range(30))
    )
    assert read(path, text="1", label="0") == read(path, text="Satz", label="Urteil")
    assert len(read(path, text="1", label="0")) == 30


def test_a_header_of_numbers(tmp_path: Path) -> None:
    path = table(tmp_path, "0,1", *NEWS)
    found = read(path)
    assert found == read(path, text="1", label="0")
    assert (found[0], len(found)) == (("item 0 of the news of the day", "1"), 40)
    # behind an index without name, numbers and positions differ
    path = table(tmp_path, ",0,1", *(f"{n},{line}" for n, line in enumerate(NEWS)))
    with pytest.raises(ExampleError, match="column '1' may be the one at position 1, '0', or the"):
        read(path, text="2", label="1")


def test_a_name_that_is_another_position_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path, "2019,text,1", *(f"{n % 2},some words {n},{n}" for n in range(20)))
    with pytest.raises(ExampleError, match=r"a\.csv:1: column '1' may be the one at position 1, "):
        read(path, text="1", label="0", header="yes")
    # there is no position 2019
    assert read(path, label="2019", header="yes")[1] == ("some words 1", "1")


def test_a_stated_header_is_believed(tmp_path: Path) -> None:
    path = table(tmp_path, "sport,the match ended in a draw", "sport,a goal", "art,an opera")
    assert len(read(path, text="1", label="0", header="no")) == 3
    assert len(read(path, text="1", label="0", header="yes")) == 2
    path = table(tmp_path, "a,b", "c,d")
    with pytest.raises(ExampleError, match=r"may be a header or not: 'a', 'b'.*--header yes or"):
        read(path, text="0", label="1")


def test_a_name_in_a_file_without_header(tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match=r"no column 'text', since it has no header: .*0 is '1'"):
        read(table(tmp_path, *NEWS), text="text")


@pytest.mark.parametrize(
    ("first", "rows", "present"),
    [
        (["label", "text"], [], True),
        (["text", "n"], [["a", "b"]], True),
        (["Note", "Wert"], [["a", "1"], ["b", "2"]], True),
        (["7", "b"], [["8", "a"], ["9", "c"]], False),
        (["a", "x"], [["a", "y"], ["b", "z"]], False),
        (["a", "x"], [["b", "y"], ["c", "z"]], None),
        # a label that is a usual name
        (["question", "who is it"], [["question", "where"], ["answer", "here"]], False),
        # years as names, above numbers: only the text tells
        (["Text", "2019"], [["so it is", "1"], ["so it was", "2"]], None),
        (
            ["rare", "a sentence of more than six words here"],
            [["common", f"a sentence of more than six words, {n}"] for n in range(20)],
            None,
        ),
        (["text 0", ""], [["text 1", ""], ["text 2", "x"]], False),
        (["", "text", "label"], [["0", "a b", "x"]], True),
    ],
)
def test_what_a_first_line_is(
    first: list[str], rows: list[list[str]], present: bool | None
) -> None:
    assert detect_header([first, *rows], USUAL_NAMES).present is present


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    path = table(tmp_path, "text,label,text", "a,1,b", "c,2,d")
    with pytest.raises(ExampleError, match=r"a\.csv:1: 2 columns have the name 'text'; name one"):
        read(path)
    assert read(path, text="2") == [("b", "1"), ("d", "2")]
    columns = [pa.array(["a", "b"]), pa.array(["x", "y"]), pa.array(["c", "d"])]
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table(columns, names=["text", "label", "text"]), path)
    with pytest.raises(ExampleError, match="2 columns have the name 'text'; give each column a un"):
        read(path)
    with pytest.raises(CorpusError, match="2 columns have the name 'text'"):
        list(Corpus([path]))
    # another column's double does no harm
    parquet.write_table(pa.table(columns, names=["x", "text", "x"]), path)
    assert [document.paragraphs for document in Corpus([path])] == [("x",), ("y",)]


def test_a_corpus_by_position(tmp_path: Path) -> None:
    path = table(tmp_path, "1,the first news", *NEWS)
    documents = [document.paragraphs[0] for document in Corpus([path], text_column="1")]
    assert len(documents) == 41
    assert documents[0] == "the first news"
    with pytest.raises(CorpusError, match="no column 'text', since it has no header"):
        list(Corpus([path]))
    path = table(tmp_path, "a,b", "c,d")
    with pytest.raises(CorpusError, match="may be a header or not"):
        list(Corpus([path], text_column="1"))
    assert len(list(Corpus([path], text_column="1", header="yes"))) == 1
    assert len(list(Corpus([path], text_column="1", header="no"))) == 2


def test_a_wrong_name_is_no_reason_to_name_the_task(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\nx,a\ny,b\n", encoding="utf-8")
    with pytest.raises(ExampleError, match="no column 'body'") as caught:
        recognise(path, Columns(text="body"))
    assert caught.value.remedy == "name one of its columns: 'text', 'label'"


def test_a_name_that_only_looks_like_a_column(tmp_path: Path) -> None:
    """As a name typed on Linux and a header written on a Mac."""
    composed, decomposed = "n\u1ed9i dung", "no\u0323\u0302i dung"
    path = tmp_path / "a.csv"
    path.write_text(f"{decomposed},label\nx,a\ny,b\n", encoding="utf-8")
    remedy = r"other characters of Unicode.*: write both alike, or name it by its position: 0"
    with pytest.raises(ExampleError, match=remedy):
        recognise(path, Columns(text=composed))
    assert recognise(path, Columns(text="0")).task == "classify"
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({decomposed: "x", "label": "a"}), encoding="utf-8")
    with pytest.raises(ExampleError, match=r"write both alike$"):
        recognise(path, Columns(text=composed))


def test_the_task_of_a_table_without_header(tmp_path: Path) -> None:
    found = recognise(table(tmp_path, *NEWS))
    assert (found.task, found.reason) == (
        "classify",
        "it has one text, and column 0 holds 4 classes",
    )


def test_a_missing_header_is_said(tmp_path: Path) -> None:
    told = reading_note(table(tmp_path, *NEWS), Columns())
    assert told is not None
    assert told.startswith("a.csv: CSV without header ('1' in its first line is repeated below): ")
    assert told.endswith("text is column 1, label is column 0 (counted from 0)")
    assert reading_note(table(tmp_path, "label,text", *NEWS), Columns()) is None
    assert reading_note(tmp_path / "none.csv", Columns()) is None


def test_a_text_that_is_not_called_so_is_said(tmp_path: Path) -> None:
    rows = ["1,A title,pos", "2,Another one,neg"]
    path = table(tmp_path, "id,Title,label", *rows)
    assert reading_note(path, Columns()) == (
        "a.csv: CSV with a header: text is 'Title', label is 'label'"
    )
    assert reading_note(path, Columns(text="title")) is None
    path = tmp_path / "a.jsonl"
    path.write_text('{"question": "q", "sentence": "s"}\n')
    assert reading_note(path, Columns()) == (
        "a.jsonl: JSONL: text is 'question', second text is 'sentence'"
    )
    path.write_text('{"Text": "q", "title": "s"}\n')
    assert reading_note(path, Columns()) is None


@pytest.mark.parametrize(
    ("cell", "share", "noted"),
    [
        ('"He said ""no"" to {n}"', 0.05, True),
        ('"yes, item {n}"', 0.2, True),
        ('"a quotation, {n}"', 0.05, False),
        ('a "word" of {n}', 1.0, False),
        ('"one" and "two" of {n}', 1.0, False),
    ],
)
def test_a_tsv_in_the_quotes_of_an_exporter_is_said(
    tmp_path: Path, cell: str, share: float, noted: bool
) -> None:
    every = int(1 / share)
    rows = [cell.format(n=n) if n % every == 0 else f"a plain text, {n}" for n in range(100)]
    path = table(tmp_path, "text\tlabel", *(f"{row}\tpos" for row in rows), name="a.tsv")
    plain = "TSV with a header: text is 'text', label is 'label'"
    note = "; quotes around cells are read as text: name the file .csv to have them removed"
    shown = plain + note if noted else plain
    assert describe_examples(path, Columns(), "class", need_label=True) == shown
    assert reading_note(path, Columns()) == (f"a.tsv: {shown}" if noted else None)
    renamed = path.rename(tmp_path / "a.csv")
    if noted:
        assert describe_examples(renamed, Columns(), "class", need_label=True) == (
            "CSV with a header: text is 'text', label is 'label'"
        )
        assert read(renamed)[0][0] == cell.format(n=0)[1:-1].replace('""', '"')


def test_names_in_quotes_are_told_to_be_a_csv(tmp_path: Path) -> None:
    lines = ['"text"\t"label"', *(f'"item {n}"\t"pos"' for n in range(20))]
    path = table(tmp_path, *lines, name="a.tsv")
    with pytest.raises(ExampleError, match=r"names are in quotes; name the file \.csv"):
        read(path)
    assert read(path.rename(tmp_path / "a.csv"))[0] == ("item 0", "pos")
