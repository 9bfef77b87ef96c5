"""Tables with a word and its tag a row: with and without header, sentences parted or numbered."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import pytest

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.tasks.config import Reading
from bertsmith.tasks.tag import TAG
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.config import USUAL_TAGS, Columns, TagColumns
from bertsmith.text.examples.detection import recognise
from bertsmith.text.examples.formats.conll import read_tagged

SENTENCES = [
    [("Anna", "B-PER"), ("visits", "O"), ("New", "B-LOC"), ("York", "I-LOC"), (".", "O")],
    [("Wait", "O"), (",", "O"), ("Bob", "B-PER"), ("!", "O")],
    [("the", "O"), ("Elbe", "B-LOC"), ("floods", "O")],
] * 3
POS = [
    [("Oh", "UH"), ("she", "PRP"), ("runs", "VBZ")],
    [("he", "PRP"), ("runs", "VBZ"), ("fast", "RB")],
    [("they", "PRP"), ("jump", "VBP")],
    [("we", "PRP"), ("jump", "VBP"), ("high", "RB")],
] * 2


def write(path: Path, rows: list[list[str]]) -> Path:
    """Write rows, empty ones as empty lines."""
    if path.suffix == ".tsv":
        path.write_text("".join("\t".join(row) + "\n" for row in rows))
        return path
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow(row) if row else text.write("\n")
    path.write_text(text.getvalue())
    return path


def parted(sentences: list[list[tuple[str, str]]]) -> list[list[str]]:
    rows: list[list[str]] = []
    for sentence in sentences:
        rows += [*map(list, sentence), []]
    return rows


def numbered(
    sentences: list[list[tuple[str, str]]], name: str = "{}", *, first: bool = False
) -> list[list[str]]:
    return [
        ["" if first and place else name.format(number), *pair]
        for number, sentence in enumerate(sentences)
        for place, pair in enumerate(sentence)
    ]


def read(
    path: Path, tags: TagColumns = USUAL_TAGS, **columns: object
) -> list[list[tuple[str, str]]]:
    found = read_tagged(path, tags, need_tags=True, table=Columns.from_dict(columns))
    return [
        [(row.text[slice(*span)], tag) for span, tag in zip(row.words, row.tags or (), strict=True)]
        for row in found
    ]


def layout(path: Path, **columns: object) -> str:
    return TAG.reader.layout(path, Reading(columns=Columns.from_dict(columns)))


LAYOUTS: dict[str, tuple[list[list[str]], str]] = {
    "parted": (parted(SENTENCES), "without header ('B-PER' in its first line is repeated below)"),
    "parted, header": ([["word", "tag"], *parted(SENTENCES)], "with a header: word is 'word', tag"),
    "parted, header then empty": ([["Token", "NER"], [], *parted(SENTENCES)], "tag is 'NER', an e"),
    "cells empty": ([row or ["", ""] for row in parted(SENTENCES)], "tag is column 1 (counted"),
    "numbered": (numbered(SENTENCES), "sentence is column 0, word is column 1, tag is column 2"),
    "numbered, header": (
        [["Sentence #", "Word", "Tag"], *numbered(SENTENCES, "Sentence: {}", first=True)],
        "with a header: sentence is 'Sentence #', word is 'Word', tag is 'Tag'",
    ),
    "numbered, other names": (
        [["Satz", "Wort", "Art"], *numbered(SENTENCES)],
        "with a header: sentence is 'Satz', word is 'Wort', tag is 'Art'",
    ),
    "numbered in the first row": (
        numbered(SENTENCES, "S{}", first=True),
        "sentence is column 0, word is column 1, tag is column 2",
    ),
    "index": (
        [["", "sentence_id", "words", "labels"]]
        + [[str(n), *row] for n, row in enumerate(numbered(SENTENCES))],
        "sentence is 'sentence_id', word is 'words', tag is 'labels'",
    ),
}


@pytest.mark.parametrize("extension", ["csv", "tsv"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_tables_of_words_and_tags_are_recognised_and_read(
    tmp_path: Path, name: str, extension: str
) -> None:
    rows, told = LAYOUTS[name]
    path = write(tmp_path / f"a.{extension}", rows)
    assert recognise(path).task == "tag"
    assert read(path) == SENTENCES
    assert told in layout(path)
    assert layout(path).endswith("entities in BIO2")


def test_a_rare_first_tag_is_a_tag_and_no_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", parted([POS[0], *POS[1:4], *POS[5:]]))
    assert recognise(path).task == "tag"
    assert read(path)[0] == POS[0]
    assert "without header ('UH' in its first line is written like the tags below)" in layout(path)
    unique = [[("Rome", "B-CITY"), ("fell", "O")], *SENTENCES]
    assert read(write(tmp_path / "b.csv", parted(unique)))[0] == unique[0]


def test_a_first_line_that_may_be_either_is_refused(tmp_path: Path) -> None:
    lower = [[(word, tag.lower()) for word, tag in sentence] for sentence in POS[1:]]
    path = write(tmp_path / "a.csv", [["Wort", "etikett"], *parted(lower)])
    assert recognise(path).task == "tag"
    with pytest.raises(ExampleError, match=r"a\.csv:1: its first line may be.*--header yes or"):
        read(path)
    assert read(path, header="yes") == read(path, text="Wort", label="etikett") == lower
    first = read(path, header="no")[0]
    assert first == [("Wort", "etikett"), *lower[0]]


def test_columns_by_position_and_by_name(tmp_path: Path) -> None:
    rows = [[tag, word, number] for number, word, tag in numbered(SENTENCES)]
    path = write(tmp_path / "a.csv", rows)
    assert read(path, text="1", label="0", group="2") == SENTENCES
    assert read(path, TagColumns(word=1, tag=-3), group="2") == SENTENCES
    header = write(tmp_path / "b.tsv", [["Art", "Wort", "Satz"], *rows])
    assert read(header, text="Wort", label="Art", group="Satz") == SENTENCES
    assert read(header, text="1", label="0", group="2") == SENTENCES
    # the numbers of the last column are no tags, where it is named for the sentences
    assert read(header, text="Wort", group="Satz") == SENTENCES
    with pytest.raises(ConfigError, match=r"the word is named twice, by --text-column and --tags"):
        read(path, TagColumns(word=2), text="1", label="0")
    with pytest.raises(ExampleError, match=r"no column 7"):
        read(path, TagColumns(word=7))
    with pytest.raises(ExampleError, match=r"no column '7'"):
        read(path, text="7")
    kaggle = [["Sentence #", "Word", "POS", "Tag"]]
    kaggle += [[*row[:2], "NN", row[2]] for row in numbered(SENTENCES, "Sentence: {}", first=True)]
    path = write(tmp_path / "c.csv", kaggle)
    assert read(path) == SENTENCES
    assert {tag for sentence in read(path, label="POS") for _, tag in sentence} == {"NN"}


@pytest.mark.parametrize("extension", ["csv", "tsv"])
@pytest.mark.parametrize("begins", [0, 1])
@pytest.mark.parametrize("header", ["auto", "yes"])
def test_numbers_of_words_are_no_words(
    tmp_path: Path, extension: str, begins: int, header: str
) -> None:
    # as in GermEval, whose second tags are those of entities inside entities
    rows: list[list[str]] = [["Nr", "Wort", "Marke", "innen"]] if header == "yes" else []
    for sentence in [SENTENCES[0][:2], *SENTENCES]:
        rows += [[str(n), *pair, "O"] for n, pair in enumerate(sentence, begins)]
        rows.append([])
    path = write(tmp_path / f"a.{extension}", rows)
    assert recognise(path).task == "tag"
    with pytest.raises(
        ExampleError, match=r"the column of the words numbers them; name it: --text-column 1 or"
    ):
        read(path, header=header)
    assert read(path, text="1", label="2", header=header)[1:] == SENTENCES
    assert read(path, text="0", label="2", header=header)[1][0] == (str(begins), "B-PER")


def test_numbers_of_words_beside_those_of_sentences_are_no_words(tmp_path: Path) -> None:
    rows = [
        [str(number), str(place), *pair]
        for number, sentence in enumerate(SENTENCES)
        for place, pair in enumerate(sentence)
    ]
    path = write(tmp_path / "a.csv", rows)
    with pytest.raises(ExampleError, match=r"the column of the words numbers them.*-column 2 or"):
        read(path)
    assert read(path, text="2") == SENTENCES
    # a word is a number here and there
    scores = [[("1", "O"), ("2", "O"), ("3", "O")], *SENTENCES]
    assert read(write(tmp_path / "b.csv", parted(scores))) == scores


def test_other_tables_are_not_taken_for_words(tmp_path: Path) -> None:
    news = [[f"{n % 4 + 1}", f"item {n} of the news"] for n in range(40)]
    assert recognise(write(tmp_path / "a.csv", news)).task == "classify"
    parted_news = [item for row in news for item in (row, [])]
    assert recognise(write(tmp_path / "b.csv", parted_news)).task == "classify"
    sheet = [["Nr", "Satz", "Art"], *([f"{n}", f"a text of {n}", "ab"[n % 2]] for n in range(40))]
    sheet.insert(20, ["", "", ""])
    with pytest.raises(ExampleError, match="no column that looks like the text"):
        recognise(write(tmp_path / "d.csv", sheet))
    words = [["text", "label"], *([f"word{n}", "ab"[n % 2]] for n in range(40))]
    assert recognise(write(tmp_path / "c.tsv", words)).task == "classify"


def test_rows_that_cannot_be_read(tmp_path: Path) -> None:
    rows = [["word", "tag"], *parted(SENTENCES)]
    rows[3] = ["New"]
    path = write(tmp_path / "a.csv", rows)
    with pytest.raises(ExampleError, match=r"a\.csv:4: 1 column where the first row has 2"):
        read(path)
    skipping = BadRows("skip")
    found = list(read_tagged(path, need_tags=True, bad=skipping))
    assert (len(found), skipping.count) == (8, 1)
    lists = write(tmp_path / "b.csv", [["tokens", "tags"], ["['a', 'b']", "['O', 'O']"]])
    with pytest.raises(ExampleError, match=r"b\.csv:2: a list where a word is expected.*jsonl"):
        read(lists)
    endless = write(tmp_path / "c.csv", [["word", "tag"], *[["a", "X"], ["b", "Y"]] * 600])
    assert recognise(endless).task == "tag"
    with pytest.raises(ExampleError, match=r"the ends of sentences are not marked.*--group-column"):
        read(endless)


@pytest.mark.parametrize("name", ["a.txt", "a.conll"])
@pytest.mark.parametrize("gap", ["\t", " "])
def test_names_above_columns_are_no_word(tmp_path: Path, name: str, gap: str) -> None:
    lines = [["Word", "Tag"], *parted(SENTENCES)]
    path = tmp_path / name
    path.write_text("".join(gap.join(row) + "\n" for row in lines))
    assert recognise(path).task == "tag"
    assert read(path) == SENTENCES
    assert "names" in layout(path)


def test_a_table_to_be_tagged_has_a_word_a_row_or_a_text_a_row(tmp_path: Path) -> None:
    words = [[word for word, _ in sentence] for sentence in SENTENCES]
    for name, rows in (
        ("tagged", parted(SENTENCES)),
        ("header", [["word"], *([word] for row in words for word in (*row, "")[: len(row) + 1])]),
    ):
        path = write(tmp_path / f"{name}.tsv", [row if row != [""] else [] for row in rows])
        asked = [row.text.split() for row in TAG.reader.unlabelled(path, Reading())]
        assert asked == words
        assert not TAG.reader.row_a_record(path, Reading())
    texts = write(tmp_path / "texts.csv", [["text"], *([" ".join(row)] for row in words)])
    assert [row.text for row in TAG.reader.unlabelled(texts, Reading())] == [
        " ".join(row) for row in words
    ]
    assert TAG.reader.row_a_record(texts, Reading())


@pytest.mark.parametrize("extension", ["csv", "tsv"])
@pytest.mark.parametrize("head", [[], [["word", "tag"]]])
def test_comments_above_a_sentence_are_no_rows(
    tmp_path: Path, extension: str, head: list[list[str]]
) -> None:
    above = [["# sent_id = 4"], ["# id 7c9f domain=en"], ["# text = a b"], ["# as found"]]
    rows = [*head, *(above[:3] if head else above), *map(list, SENTENCES[0]), []]
    for sentence in SENTENCES[1:]:
        rows += [*above, *map(list, sentence), []]
    hashes = [("#", "O"), ("#1", "O"), ("Bob", "B-PER")]
    path = write(tmp_path / f"a.{extension}", [*rows, *map(list, hashes)])
    assert recognise(path).task == "tag"
    assert read(path) == [*SENTENCES, hashes]
    # where rows are numbered, no empty one begins a sentence
    rows = [["sentence", "word", "tag"]]
    for number, sentence in enumerate(SENTENCES):
        rows += [[f"# sent_id = {number}"], *([str(number), *pair] for pair in sentence)]
    assert read(write(tmp_path / f"b.{extension}", rows)) == SENTENCES


@pytest.mark.parametrize("row", ["#hashtag", "#", "# a b c d"])
def test_a_cell_within_a_sentence_is_no_comment(tmp_path: Path, row: str) -> None:
    path = write(tmp_path / "a.tsv", [["Alex", "B-PER"], [row], ["is", "O"]])
    with pytest.raises(ExampleError, match=r":2: 1 column where the first row has 2"):
        read(path)
