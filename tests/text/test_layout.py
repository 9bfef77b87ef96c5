from __future__ import annotations

import textwrap
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import rich.console
import rich.text

from bertsmith.text.config import Layout
from bertsmith.text.corpus.documents import Document, documents_of_shape, measure
from bertsmith.text.corpus.files import Corpus
from bertsmith.text.corpus.sections import cut_text

PROSE = [
    "It was a bright cold day in the village, and the clocks of the old church on the hill were "
    "striking eleven, as they had done every day for longer than anybody could remember.",
    '"You are late," said the porter, without looking up from the paper in front of him.',
    "Nobody answered. The door fell shut, the lamp over the desk went out, and it was then that "
    "the well-known voice of the inspector was heard from the stairs, asking for a candle and for "
    "the key of the cellar, in which, as he said, there was something that nobody had looked at.",
]


def documents(text: str, layout: Layout = "auto") -> list[tuple[str, ...]]:
    return [found.paragraphs for found in found_in(text, layout)]


def found_in(text: str, layout: Layout) -> Iterator[Document]:
    lines = text.split("\n")
    return documents_of_shape(enumerate(lines, start=1), "a", measure(lines, layout))


def wrapped(paragraph: str, indent: str = "") -> str:
    return textwrap.fill(paragraph, 60, initial_indent=indent, break_on_hyphens=True)


def test_google_s_format() -> None:
    text = "One a.\nTwo a.\nThree a.\n\nOne b.\nTwo b.\n\n\nOne c.\nTwo c.\n"
    expected = [("One a.", "Two a.", "Three a."), ("One b.", "Two b."), ("One c.", "Two c.")]
    assert documents(text) == expected
    assert documents(text, "documents") == expected


def test_paragraphs_on_lines_without_blank_ones_are_one_document() -> None:
    assert documents("\n".join(PROSE)) == [tuple(PROSE)]


def test_paragraphs_between_single_blank_lines_are_one_document() -> None:
    assert documents("\n\n".join(PROSE)) == [tuple(PROSE)]
    assert documents("\n\n".join(PROSE), "documents") == [(paragraph,) for paragraph in PROSE]


def test_longer_runs_of_blank_lines_part_documents_but_no_heading_from_its_text() -> None:
    chapter = "\n\n".join(PROSE * 4)
    text = f"CHAPTER I\n\n\n{chapter}\n\n\n\nCHAPTER II\n\n\n{chapter}\n"
    expected = [("CHAPTER I", *PROSE * 4), ("CHAPTER II", *PROSE * 4)]
    assert documents(text) == expected


def test_where_most_runs_are_double_a_longer_one_parts_documents() -> None:
    chapter = "\n\n\n".join(PROSE * 4)
    assert documents(f"{chapter}\n\n\n\n{chapter}") == [tuple(PROSE * 4)] * 2
    assert documents(chapter) == [tuple(PROSE * 4)]


@pytest.mark.parametrize(("between", "indent"), [("\n\n", ""), ("\n", ""), ("\n", "    ")])
def test_wrapped_lines_are_joined(between: str, indent: str) -> None:
    text = between.join(wrapped(paragraph, indent) for paragraph in PROSE * 3)
    assert max(map(len, text.split("\n"))) <= 60
    assert documents(text) == [tuple(PROSE * 3)]


def test_wrapped_headings_stay_apart() -> None:
    text = "\n".join(["CHAPTER I", "The Porter", *map(wrapped, PROSE * 3)])
    assert documents(text) == [("CHAPTER I", "The Porter", *PROSE * 3)]


def test_seams_of_wrapped_lines() -> None:
    text = "a well-\nknown man, an ex\u00ad\nample -\nand a dash"
    expected = [("a well-known man, an example - and a dash",)]
    assert documents(text, "wrapped") == expected
    assert documents("これは長い\n文です。", "wrapped") == [("これは長い文です。",)]


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        ("ภาษาไทยเป็นภา\nษาที่ไม่มีช่อง", "ภาษาไทยเป็นภาษาที่ไม่มีช่อง"),
        ("ភាសាខ្មែរ\nគ្មានដកឃ្លា", "ភាសាខ្មែរគ្មានដកឃ្លា"),
        ("语言，\n文字", "语言，文字"),
        ("文字。\n语言", "文字。语言"),
        ("한국어는\n띄어 쓴다", "한국어는 띄어 쓴다"),
        ("ไทย\nThai", "ไทย Thai"),
    ],
)
def test_no_space_comes_into_words_of_scripts_without_blanks(lines: str, joined: str) -> None:
    assert documents(lines, "wrapped") == [(joined,)]


JAPANESE = [
    "その朝、村はとても寒く、丘の上の古い教会の時計は、誰も覚えていないほど昔から毎日そうして"
    "きたように、十一時を打っていた。",
    "「遅かったですね。」と、番人は机の上の紙から目を上げずに言った。誰も返事をしなかった。",
    "戸が閉まり、机の上の明かりが消えた。そのとき、階段の上から聞きなれた声がして、蝋燭と地下"
    "室の鍵を持ってくるようにと言うのが聞こえた。そこには誰も見たことのない物があるのだという。",
]
KOREAN = [
    "그날 아침 마을은 몹시 추웠고, 언덕 위 오래된 교회의 시계는 아무도 기억하지 못할 만큼 "
    "오래전부터 날마다 그래 왔듯이 열한 시를 치고 있었다.",
    "문지기는 책상 위의 종이에서 눈을 들지 않고 늦었다고 말했다. 아무도 대답하지 않았다.",
    "문이 닫히고 책상 위의 등불이 꺼졌다. 그때 계단 위에서 귀에 익은 목소리가 들려와 초와 지하실 "
    "열쇠를 가져오라고 했다. 그곳에는 아무도 본 적이 없는 물건이 있다고 그는 말했다.",
]


@pytest.mark.parametrize("between", ["\n\n", "\n"])
def test_lines_of_wide_letters_are_as_long_as_they_look(between: str) -> None:
    # 72 columns, as editors and mail programs wrap them
    japanese = (
        "\n".join(text[at : at + 36] for at in range(0, len(text), 36)) for text in JAPANESE
    )
    assert documents(between.join(japanese)) == [tuple(JAPANESE)]
    korean = [rich.text.Text(text).wrap(rich.console.Console(), 60) for text in KOREAN * 3]
    wrapped_lines = between.join("\n".join(line.plain.strip() for line in text) for text in korean)
    assert documents(wrapped_lines) == [tuple(KOREAN * 3)]


def test_a_line_that_ends_with_a_quoted_sentence_may_end_its_paragraph() -> None:
    long = "Es war ein kalter Morgen, und niemand im ganzen Dorf war schon aufgestanden"
    text = f"{long}\nund sagte: „Geh jetzt bitte nach Hause zu deinen Leuten.“\n{long} oder wach."
    assert len(documents(text, "wrapped")[0]) == 2
    georgian = "ეს არის ძალიან გრძელი წინადადება, რომელიც ორ სტრიქონზეა გადატანილი და მთავრდება"
    text = f"{georgian}\nმეორე სტრიქონზე მოკლედ.\n{georgian}\nაქ."
    assert len(documents(text, "wrapped")[0]) == 2


def test_line_numbers_are_those_of_the_first_lines() -> None:
    text = "\n\n\n" + "\n\n".join(map(wrapped, PROSE)) + "\n\n\n\n" + wrapped(PROSE[2])
    lines = list(enumerate(text.split("\n"), start=1))
    found = list(found_in(text, "wrapped"))
    lasts = [number for number, line in lines if line.startswith("Nobody answered.")]
    assert [document.line for document in found] == [4, lasts[1]]


@pytest.mark.parametrize(
    ("lines", "layout"),
    [
        (["a short list", "of words", "and such"] * 9, "documents"),
        (["all small letters , one sentence a line ."] * 9, "documents"),
        ([*map(str, range(40)), ""] * 3, "documents"),
        (
            [f"Jan {day:2} 12:00:01 worker closed connection {day:032x}" for day in range(9)],
            "documents",
        ),
        (["one"], "prose"),
        ([], "prose"),
        (["", "", ""], "prose"),
    ],
)
def test_what_auto_takes_other_lists_of_lines_for(lines: list[str], layout: Layout) -> None:
    assert measure(lines, "auto").layout == layout


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    def peak(paragraphs: int) -> int:
        path = tmp_path / "a.txt"
        path.write_text((PROSE[0] * 50 + "\n\n") * paragraphs, encoding="utf-8")
        tracemalloc.start()
        for _ in Corpus([path], layout="documents"):
            pass
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    assert peak(1_600) < 1.5 * peak(400)


KINDS: dict[str, Layout] = {
    "Dickens_Bleak_1853": "wrapped",
    "Forster_Howards_1910": "wrapped",
    "Woolf_Lighthouse_1927": "wrapped",
    "Hardy_Madding_1874": "wrapped",
    "Ford_Girl_1907": "wrapped",
    "Eliot_Daniel_1876": "prose",
    "Woolf_Night_1919": "prose",
    "Schreiner_Farm_1883": "prose",
    "Cbronte_Jane_1847": "documents",
    "Galsworthy_River_1933": "documents",
}


@pytest.mark.parametrize("name", KINDS)
def test_real_novels(data_folder: Path, name: str) -> None:
    path = data_folder / "text" / "novels" / f"{name}.txt"
    text = path.read_text(encoding="utf-8-sig")
    assert measure(text[: 1 << 18].split("\n"), "auto").layout == KINDS[name]
    words = " ".join(_paragraphs(path)).replace("-", " ").split()
    assert words == text.replace("-", " ").split()
    if KINDS[name] == "wrapped":
        ends = [paragraph[-1] for paragraph in _paragraphs(path)]
        assert sum(end.isalpha() or end == "," for end in ends) < 0.07 * len(ends)


def _paragraphs(path: Path) -> Iterator[str]:
    for document in Corpus([path]):
        yield from document.paragraphs


def test_documents_far_apart_are_told_apart_without_counting_all_lines_between() -> None:
    blanks = "\n" * 1_500_000
    texts = [text * 3 for text in PROSE[:3]]
    text = blanks.join(texts)
    shape = measure(text.split("\n"), "prose")
    # looking for a run of blank lines takes time by the square of its length
    assert 2 <= shape.gap <= 100
    sections = list(cut_text([text.encode()], shape))
    assert b"".join(sections) == text.encode()
    found = [
        document.paragraphs
        for section in sections
        for document in documents_of_shape(enumerate(section.decode().split("\n")), "a", shape)
    ]
    assert found == [(text,) for text in texts]


def test_a_text_without_ends_of_paragraphs_is_joined_in_time() -> None:
    """In a script without blanks each line was put behind all before it."""
    began = time.process_time()
    line = "文" * 40
    text = "\n".join([line] * 24_000)
    assert documents(text, "wrapped") == [(line * 24_000,)]
    assert time.process_time() - began < 5  # what grew with the square would take minutes
