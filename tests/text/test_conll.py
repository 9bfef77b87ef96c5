from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from bertsmith.core.errors import ExampleError
from bertsmith.text.config import TagColumns
from bertsmith.text.examples.formats.conll import read_tagged, tag_scheme
from bertsmith.text.examples.tagged import (
    BadTag,
    Entity,
    Scheme,
    entities_of,
    in_scheme_of,
    joined,
    recognise_scheme,
    tags_of,
    to_bio2,
    words_of,
)

# one sentence in each scheme
SAME: dict[Scheme, list[str]] = {
    "bio1": ["I-PER", "O", "O", "I-LOC", "I-LOC", "B-LOC", "I-ORG"],
    "bio2": ["B-PER", "O", "O", "B-LOC", "I-LOC", "B-LOC", "B-ORG"],
    "bioes": ["S-PER", "O", "O", "B-LOC", "E-LOC", "S-LOC", "S-ORG"],
    "ioe": ["I-PER", "O", "O", "I-LOC", "E-LOC", "I-LOC", "I-ORG"],
}
WORDS = ["Alex", "is", "in", "Los", "Angeles", "California", "Inc"]


def column(tags: list[str], gap: str = " ") -> str:
    return "".join(f"{word}{gap}{tag}\n" for word, tag in zip(WORDS, tags, strict=True)) + "\n"


@pytest.mark.parametrize("scheme", SAME)
@pytest.mark.parametrize("gap", [" ", "\t", "  ", " NNP I-NP ", "\tNNP\t"])
def test_every_scheme_is_recognised_and_turned_into_bio2(
    tmp_path: Path, scheme: Scheme, gap: str
) -> None:
    path = tmp_path / "a.txt"
    lines = column(SAME[scheme], gap)
    path.write_text(f"-DOCSTART- -X- O O\n\n{lines}-DOCSTART-\n\n\n{lines}")
    assert tag_scheme(path) == scheme
    first, second = read_tagged(path, need_tags=True)
    assert first.tags == tuple(SAME["bio2"])
    assert first.text == " ".join(WORDS)
    assert [first.text[slice(*span)] for span in first.words] == WORDS
    found = [(first.text[start:end], label) for start, end, label in first.entities or ()]
    expected = [("Alex", "PER"), ("Los Angeles", "LOC"), ("California", "LOC"), ("Inc", "ORG")]
    assert found == expected
    assert (first.line, first.document, second.document) == (3, 1, 2)
    assert second.line == 14
    named = TagColumns(word=0, tag=-1, scheme=scheme)
    assert [item.tags for item in read_tagged(path, named, need_tags=True)] == [first.tags] * 2


def test_bilou_is_bioes() -> None:
    tags = ["U-PER", "B-LOC", "I-LOC", "L-LOC", "O"]
    assert recognise_scheme([tags]) == "bioes"
    assert to_bio2(tags, "bioes") == ("B-PER", "B-LOC", "I-LOC", "I-LOC", "O")


@pytest.mark.parametrize(
    "tags",
    [
        ["E-PER", "I-LOC", "I-LOC", "E-LOC", "E-LOC"],
        ["I-PER", "I-LOC", "I-LOC", "E-LOC", "I-LOC"],
        ["S-PER", "B-LOC", "M-LOC", "E-LOC", "S-LOC"],
        ["W-PER", "B-LOC", "M-LOC", "E-LOC", "W-LOC"],
    ],
    ids=["ioe2", "ioe1", "bmes", "bmewo"],
)
def test_schemes_that_mark_ends_and_middles(tags: list[str], tmp_path: Path) -> None:
    words = ("Ann", "Rio", "de", "Janeiro", "Oslo")
    path = tmp_path / "a.conll"
    path.write_text("\n".join(map(" ".join, zip(words, tags, strict=True))) + "\n\nhere O\n")
    first, _ = read_tagged(path, need_tags=True)
    found = [(first.text[start:end], label) for start, end, label in first.entities or ()]
    assert found == [("Ann", "PER"), ("Rio de Janeiro", "LOC"), ("Oslo", "LOC")]


def test_letters_of_no_scheme_are_plain() -> None:
    assert recognise_scheme([["M-sg", "W-pl", "M-pl", "O"]]) == "plain"
    with pytest.raises(BadTag):
        to_bio2(["B-PER", "M-PER"], "bio2")


def test_sentences_are_tagged_in_the_scheme_of_many_labels_in_time() -> None:
    began = time.process_time()
    labels = tuple(f"{letter}-{number}" for number in range(5_000) for letter in "BIES")
    for _ in range(2_000):
        assert in_scheme_of(labels, ["B-1", "I-1", "O"]) == ("B-1", "E-1", "O")
    assert time.process_time() - began < 5  # what grew with the product would take minutes


def test_random_entities_survive_every_scheme() -> None:
    """Entities are written down by each scheme's definition, and read back."""
    for number in range(300):
        chance = random.Random(number)
        bio1: list[str] = []
        bio2: list[str] = []
        bioes: list[str] = []
        ioe2: list[str] = []
        before = ""
        for _ in range(chance.randint(1, 6)):
            kind = chance.choice(["", "A", "B"])
            size = chance.randint(1, 3)
            if not kind:
                for tags in (bio1, bio2, bioes, ioe2):
                    tags.extend(["O"] * size)
            else:
                bio2 += [f"B-{kind}"] + [f"I-{kind}"] * (size - 1)
                bio1 += [f"{'B' if before == kind else 'I'}-{kind}"] + [f"I-{kind}"] * (size - 1)
                middle = [f"I-{kind}"] * (size - 2)
                bioes += [f"S-{kind}"] if size == 1 else [f"B-{kind}", *middle, f"E-{kind}"]
                ioe2 += [f"I-{kind}"] * (size - 1) + [f"E-{kind}"]
            before = kind
        assert to_bio2(bio1, "bio1") == to_bio2(bioes, "bioes") == tuple(bio2)
        assert to_bio2(bio2, "bio2") == to_bio2(ioe2, "ioe") == tuple(bio2)
        bilou = [{"E": "L", "S": "U"}.get(tag[0], tag[0]) + tag[1:] for tag in bioes]
        bmes = [f"M{tag[1:]}" if tag[0] == "I" else tag for tag in bioes]
        bmewo = [f"W{tag[1:]}" if tag[0] == "S" else tag for tag in bmes]
        assert to_bio2(bmes, "bioes") == to_bio2(bmewo, "bioes") == tuple(bio2)
        written = {"BI": bio2, "BIES": bioes, "BILU": bilou, "BMES": bmes, "BMEW": bmewo}
        for letters, tags in (written | {"IE": ioe2}).items():
            labels = ["O", *(f"{letter}-{kind}" for letter in letters for kind in "AB")]
            assert in_scheme_of(labels, bio2) == tuple(tags)
        # no entity of the type C follows another, so none begins with B
        labels = ["O", *(f"{letter}-{kind}" for letter in "BI" for kind in "AB"), "I-C"]
        assert in_scheme_of(labels, bio2) == tuple(bio1)
        types = tuple(tag.rpartition("-")[2] for tag in bio2)
        assert in_scheme_of(["A", "B", "O"], bio2) == types


def test_tags_that_the_labels_of_a_model_lack_are_those_it_has_or_stay() -> None:
    beside = ["B-X", "B-X", "I-X", "B-Y"]
    assert in_scheme_of(["O", "I-X"], beside) == ("I-X", "I-X", "I-X", "B-Y")
    assert in_scheme_of(["O", "S-X", "B-X", "I-X"], beside) == ("S-X", "B-X", "I-X", "B-Y")


def test_a_model_may_predict_what_no_scheme_allows() -> None:
    _, words = joined(["a", "b", "c", "d"])
    assert entities_of(words, ["I-X", "I-Y", "O", "I-Y"]) == (
        Entity(0, 1, "X"),
        Entity(2, 3, "Y"),
        Entity(6, 7, "Y"),
    )
    with pytest.raises(BadTag):
        to_bio2(["O", "I-X"], "bio2")


def test_parts_of_speech_are_plain(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("Ann\tNNP\nruns\tVBZ\n")
    (found,) = read_tagged(path, need_tags=True)
    assert (found.tags, found.entities) == (("NNP", "VBZ"), None)


@pytest.mark.parametrize("gap", [" ", "\t", " NNP I-NP "])
@pytest.mark.parametrize("name", ["a.conll", "a.txt"])
def test_comments_above_a_sentence(tmp_path: Path, gap: str, name: str) -> None:
    comments = "# id 7c9f domain=en\n# sent_id = 3\n# text = Alex is in Los Angeles\n"
    sentence = column(SAME["bio2"], gap)
    with_hashes = f"#{gap}O\n#1{gap}O\nAlex{gap}B-PER\n\n"
    path = tmp_path / name
    head = "# global.columns = FORM NER\n\n"
    path.write_text(head + comments + sentence + "# id 8\n" + with_hashes + f"#{gap}O\n")
    first, second, third = read_tagged(path, need_tags=True)
    assert (first.text, first.line, first.tags) == (" ".join(WORDS), 6, tuple(SAME["bio2"]))
    assert (second.text, second.tags) == ("# #1 Alex", ("O", "O", "B-PER"))
    assert (third.text, third.tags) == ("#", ("O",))


@pytest.mark.parametrize("gap", [" ", "\t"])
@pytest.mark.parametrize(
    "licence", ["# Copyright of a university\n# All rights\n", "# ours , as is\n"]
)
def test_a_block_of_comments_alone(tmp_path: Path, gap: str, licence: str) -> None:
    path = tmp_path / "a.conll"
    sentence = column(SAME["bio2"], gap)
    path.write_text(f"{licence}\n\n{sentence}\n{licence}\n#{gap}O\n\n{sentence}\n{licence}")
    first, hashes, second = read_tagged(path, need_tags=True)
    assert first.tags == second.tags == tuple(SAME["bio2"])
    assert (hashes.text, hashes.tags) == ("#", ("O",))


def test_comments_of_as_many_columns_as_a_word_has(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("# tagged by me\n# CC\n\n# mine\n# sent_id = 1\n# O\nAda B-PER\n\n# O\n")
    first, second = read_tagged(path, need_tags=True)
    assert (first.text, first.tags, first.line) == ("# Ada", ("O", "B-PER"), 6)
    assert (second.text, second.tags) == ("#", ("O",))


@pytest.mark.parametrize("line", ["#hashtag", "#", "# a b c d"])
def test_a_word_without_its_tag_is_no_comment(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.conll"
    path.write_text(f"Alex B-PER\n{line}\nis O\n\n#tag O\nis O\n")
    with pytest.raises(ExampleError, match=r":2: \d columns? where the first word has 2"):
        list(read_tagged(path, need_tags=True))


def test_words_without_tags(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Ann\nruns\n\nBob\n")
    assert [item.text for item in read_tagged(path, need_tags=False)] == ["Ann runs", "Bob"]
    with pytest.raises(ExampleError, match="one column only, so no tags"):
        list(read_tagged(path, need_tags=True))


def test_columns_by_option(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1 Ann NNP B-PER _\n2 runs VBZ O _\n")
    (found,) = read_tagged(path, TagColumns(word=1, tag=3), need_tags=True)
    assert (found.text, found.tags) == ("Ann runs", ("B-PER", "O"))
    with pytest.raises(ExampleError, match=r"a\.txt:1: no column 5 for the tag; its 5 columns"):
        list(read_tagged(path, TagColumns(word=1, tag=5), need_tags=True))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("head", ["", "id word tag\n"])
def test_numbers_of_words_are_not_taken_for_the_words(
    tmp_path: Path, first: int, head: str
) -> None:
    words = ["Anna", "met", "Bo", "."]
    rows = "".join(f"{n} {word} O\n" for n, word in enumerate(words, first))
    (tmp_path / "a.conll").write_text(f"{head}{rows}\n{rows}")
    with pytest.raises(ExampleError, match="the first column numbers the words") as refused:
        list(read_tagged(tmp_path / "a.conll", need_tags=True))
    assert "--tags.word 1" in refused.value.remedy
    (row, _) = read_tagged(tmp_path / "a.conll", TagColumns(word=1), need_tags=True)
    assert row.text.split() == words
    assert "--tags.word=-3 where the numbers are the words" in refused.value.remedy
    (row, _) = read_tagged(tmp_path / "a.conll", TagColumns(word=-3), need_tags=True)
    assert row.text.split() == [str(n) for n in range(first, first + 4)]
    # years and scores may be words
    (tmp_path / "b.conll").write_text("1 O\n2 O\n\n1 O\n3 O\n2 O\n")
    assert len(list(read_tagged(tmp_path / "b.conll", need_tags=True))) == 2


def test_conll_u(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    rows = [
        "1-2\tdu\t_\t_",
        "1\tde\tde\tADP",
        "2\tle\tle\tDET",
        "2.1\tx\tx\tVERB",
        "3\tlac\tlac\tNOUN",
    ]
    lines = ["# newdoc id = 1", "# text = du lac", *(f"{row}\tX\t_\t0\t_\t_\t_" for row in rows)]
    path.write_text("\n".join([*lines, "", *lines]) + "\n")
    first, second = read_tagged(path, need_tags=True)
    assert (first.text, first.tags) == ("de le lac", ("ADP", "DET", "NOUN"))
    assert (first.line, first.document, second.document) == (4, 1, 2)
    (found, _) = read_tagged(path, TagColumns(word=2, tag=4), need_tags=True)
    assert found.tags == ("X", "X", "X")
    # with one of the two columns named, the other was that of other files: numbers were the words
    for columns in (TagColumns(tag=4), TagColumns(word=2)):
        (found, _) = read_tagged(path, columns, need_tags=True)
        tags = ("X", "X", "X") if columns.tag == 4 else ("ADP", "DET", "NOUN")
        assert (found.text, found.tags) == ("de le lac", tags)


def test_raw_text_with_places(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    text = "  Ann-Marie's in  S\u00e3o Paulo.\n"
    rows: list[dict[str, object]] = [
        {"text": text, "entities": [[18, 27, "LOC"], [2, 11, "PER"]]},
        {"text": "Bob", "entities": []},
        {"text": "overland", "entities": [{"start": 4, "end": 8, "label": "LOC"}]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    first, second, third = read_tagged(path, need_tags=True)
    assert first.text == text
    assert first.entities == (Entity(2, 11, "PER"), Entity(18, 27, "LOC"))
    words = [first.text[slice(*span)] for span in first.words]
    assert words == ["Ann", "-", "Marie", "'", "s", "in", "S\u00e3o", "Paulo", "."]
    assert first.tags == ("B-PER", "I-PER", "I-PER", "O", "O", "O", "B-LOC", "I-LOC", "O")
    assert entities_of(first.words, first.tags) == first.entities
    assert (second.entities, second.tags) == ((), ("O",))
    # an entity within a word is kept as it is, and the word is tagged
    assert third.entities == (Entity(4, 8, "LOC"),)
    assert third.tags == ("B-LOC",)


@pytest.mark.parametrize(
    "words",
    [
        ["cafe\u0301", "nai\u0308ve", "\u00e9tude"],
        ["\u0939\u093f\u0928\u094d\u0926\u0940", "\u0915\u094d\u200d\u0937", "\u0964"],
        ["\u0645\u06cc\u200c\u0631\u0648\u0645", "co\u00adop", "\u05e9\u05b8\u05c1"],
        ["\u738b|\u5c0f|\u660e", "\u308f|\u305f|\u3057", "\uff76\uff9e|\uff72", "B2"],
        ["\u0e17\u0e35\u0e48|\u0e19\u0e35\u0e49", "\u1780\u17b6|\u179a", "\u1000\u103c\u1031"],
        ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f|!"],
        ["\u0301", "-\u0301", "1\ufe0f\u20e3", "a_1", "don|'|t"],
    ],
)  # fmt: skip
def test_words_of_every_script(words: list[str]) -> None:
    text = " ".join(words).replace("|", "")
    found = [text[start:end] for start, end in words_of(text)]
    assert found == [part for word in words for part in word.split("|")]


def test_neighbours_and_two_in_a_word() -> None:
    words = words_of("Rome Paris ab")
    entities = [Entity(0, 4, "L"), Entity(5, 10, "L"), Entity(11, 12, "X"), Entity(12, 13, "Y")]
    assert tags_of(words, entities) == ("B-L", "B-L", "B-X")


def test_half_a_surrogate_keeps_the_places(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "\\ud800 Ann", "entities": [[2, 5, "PER"]]}\n')
    (found,) = read_tagged(path, need_tags=True)
    assert found.text == "? Ann"
    assert found.text[slice(*(found.entities or ())[0][:2])] == "Ann"
