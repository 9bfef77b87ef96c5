from __future__ import annotations

import gzip
import json
import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from bertsmith.core.errors import CorpusError
from bertsmith.text.config import Layout
from bertsmith.text.corpus.documents import Document, documents_of_shape, measure_start
from bertsmith.text.corpus.files import Corpus
from bertsmith.text.corpus.sections import Position, Section, cut_text

WORDS = ["gabo", "dela", "Kuri", "moti.", "ze", "é", "mila", "文", "zu"]
ENDS = ["\n", "\r\n", "\r"]


@pytest.fixture(autouse=True)
def small_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertsmith.text.corpus.sections.SECTION_BYTES", 3_000)
    monkeypatch.setattr("bertsmith.text.corpus.sections.MAX_DOCUMENT_LENGTH", 12_000)


def text(seed: int, end: str, *, documents: int = 60) -> str:
    """Documents of paragraphs of words, three empty lines between; some are but headings."""
    choose = random.Random(seed)

    def paragraph() -> str:
        words = choose.choices(WORDS, k=choose.choice((1, 3, 30, 60)))
        return " ".join(words)

    found = []
    for _ in range(documents):
        count = choose.choice((1, 2, 9))
        found.append((end * 2).join(paragraph() for _ in range(count)))
    return (end * 4).join(found) + end


def all_of(found: Iterator[Section]) -> list[Document]:
    """The documents, by way of what another process would get."""
    every = [pickle.loads(pickle.dumps(section)) for section in found]
    return [document for section in every for document in section.documents()]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("layout", ["documents", "prose", "wrapped"])
@pytest.mark.parametrize("seed", [1, 2])
def test_documents_are_those_of_the_whole_text(
    tmp_path: Path, layout: Layout, end: str, seed: int
) -> None:
    path = tmp_path / "a.txt"
    whole = text(seed, end)
    path.write_bytes(whole.encode())
    corpus = Corpus([path], layout=layout)
    assert len(list(corpus.sections())) >= 4
    lines = list(enumerate(whole.split(end), 1))
    shape = measure_start(whole.encode(), layout)
    assert all_of(corpus.sections()) == list(documents_of_shape(lines, str(path), shape))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("layout", ["documents", "prose", "wrapped"])
def test_where_sections_end_does_not_depend_on_how_the_file_is_read(
    end: str, layout: Layout
) -> None:
    # the middle has no place to cut for so long that it is cut by force
    long = (" ".join(WORDS * 90) + end) * 20 + " ".join(WORDS * 2_000)
    data = (text(3, end) + end * 4 + long + end * 4 + text(4, end)).encode()
    shape = measure_start(data, layout)
    wanted = list(cut_text([data], shape))
    assert b"".join(wanted) == data
    assert len(wanted) > 8
    assert max(map(len, wanted)) <= 12_000
    for section in wanted:
        section.decode("utf-8")
    for size in (7, 1_000, 4_096):
        blocks = [data[start : start + size] for start in range(0, len(data), size)]
        assert list(cut_text(blocks, shape)) == wanted


def test_text_without_any_place_to_cut_at() -> None:
    data = "é文".encode() * 9_000
    found = list(cut_text([data], measure_start(data, "auto")))
    assert b"".join(found) == data
    assert [section.decode("utf-8") for section in found]


def corpus_of_every_kind(folder: Path) -> Corpus:
    (folder / "a.txt").write_text("\ufeff" + text(5, "\r\n"), encoding="utf-8", newline="")
    (folder / "b.txt.gz").write_bytes(gzip.compress(text(6, "\n").encode()))
    (folder / "c.txt").write_text("")
    rows = [json.dumps({"text": part}) for part in text(7, "\n").split("\n\n\n\n")]
    packed = zstandard.ZstdCompressor().compress("\n".join(rows).encode())
    (folder / "d.jsonl.zst").write_bytes(packed)
    cells = ('"' + part + '"' for part in text(8, "\n").split("\n\n\n\n"))
    (folder / "e.csv").write_text("text\n" + "\n".join(cells), encoding="utf-8")
    return Corpus([folder])


def test_reading_goes_on_from_the_end_of_any_section(tmp_path: Path) -> None:
    corpus = corpus_of_every_kind(tmp_path)
    whole = list(corpus.sections())
    assert {section.end.file for section in whole} == {0, 1, 3, 4}
    read = [section.end.read for section in whole]
    assert read == sorted(read)
    assert read[-1] == corpus.total_bytes
    for number, section in enumerate(whole):
        position = Position.from_dict(section.end.to_dict())
        rest = list(corpus.sections(position))
        assert all_of(iter(rest)) == all_of(iter(whole[number + 1 :]))
        assert [item.end for item in rest] == [item.end for item in whole[number + 1 :]]


def test_a_fault_is_named_with_its_line_wherever_its_section_begins(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    good = text(9, "\r\n").encode()
    path.write_bytes(good + b"ga\xffbo\r\n")
    line = good.count(b"\n") + 1
    found = list(Corpus([path]).sections())
    assert len(found) > 2
    with pytest.raises(CorpusError, match=rf"a\.txt:{line}: is not UTF-8: byte 0xFF") as caught:
        list(pickle.loads(pickle.dumps(found[-1])).documents())
    # as it comes out of another process
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.line) == (str(caught.value), line)


def test_pipes_cannot_be_read_again(tmp_path: Path) -> None:
    assert corpus_of_every_kind(tmp_path).lasting
    os.mkfifo(tmp_path / "f.txt")
    assert not Corpus([tmp_path / "a.txt", tmp_path / "f.txt"]).lasting
