"""Many documents at once give what splitting and encoding them one sentence at a time gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.text.corpus.sentences import split_sentences
from bertsmith.text.white_space import tidy
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bulk.chunks import ChunkTable, Encoded
from bertsmith.tokens.bulk.documents import DocumentEncoder, EncodedText
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS

# what sentences end and begin with, and what is cut apart where there is no blank
MARKS = """. ! ? ... … . " ' ) ( ” “ '' ’ » ] — _ $ # § – ⸻ 。 ！ 」 、 ｡ ؟ । ॥ ။ ៕ ． ; « › „ “ ‘
    .“ .« .” .) [1]"""
WORDS = "Mr I i e.g a B 3 12 IV iv No no etc U.S u.s The the Fig hello Straße İ _the_ A. “The"
OTHERS = "中 文 漢字 中. ⓐ ª ǅ ١ Ⅳ ² é \u212a ﬁ 한국어 カナ [MASK] [SEP] 👩‍👩‍👧 \U00020000"
ODD = ("e\u0301", "\u0301", "\u200b", "\ufffd", "\ud800", "\x01", "\x7f", "\ufeff", "\u200f")
SCRIPTS = ("α", "Γ;", "აბ", "가", "אב\u200f.", "མ།")
LONG = ("y" * 16, "z" * 17, "x" * 120)
BLANKS = (" ",) * 24
PIECES = (*MARKS.split(), *WORDS.split(), *OTHERS.split(), *ODD, *SCRIPTS, *LONG, *BLANKS)
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=40).map("".join).map(tidy)
GROUPS = st.lists(st.lists(TEXTS.filter(bool), min_size=1, max_size=3), max_size=5)
RULES = tuple(
    BasicRules(lowercase=lowercase, strip_accents=strip, space_cjk=cjk)
    for lowercase in (True, False)
    for strip, cjk in ((None, True), (True, False), (False, True))
)


@cache
def tokenizer(rules: BasicRules) -> Tokenizer:
    """One with a piece for most characters of `PIECES`, and a few words."""
    characters = sorted({c for c in "".join(PIECES).lower() + "ABCMRST" if c.isprintable()} - {" "})
    pieces = (*characters, *("##" + c for c in characters), "the", "hello", "mr", "##llo", "the.")
    return Tokenizer(tuple(dict.fromkeys((*SPECIALS, *pieces))), rules)


def one_by_one(made: Tokenizer, group: Sequence[Sequence[str]]) -> EncodedText:
    ids: list[int] = []
    sentences: list[int] = []
    documents: list[int] = []
    words = 0
    for paragraphs in group:
        split = [sentence for text in paragraphs for sentence in split_sentences(text)]
        encoded = made.encode(split, specials_in_text=False)
        lengths = [len(part) for part in encoded if len(part)]
        if lengths:
            ids += np.concatenate(encoded).tolist()
            sentences += lengths
            documents.append(len(lengths))
            words += sum(len(sentence.split()) for sentence in split)
    return EncodedText(
        ids=np.array(ids, np.int32),
        sentences=np.array(sentences, np.int64),
        documents=np.array(documents, np.int64),
        words=words,
        unknown=ids.count(made.unknown_id),
    )


def in_bytes(group: Sequence[Sequence[str]]) -> list[bytes]:
    return ["\n".join(paragraphs).encode("utf-8", "surrogatepass") for paragraphs in group]


def assert_same(ours: EncodedText, expected: EncodedText) -> None:
    assert ours.sentences.tolist() == expected.sentences.tolist()
    assert ours.ids.tolist() == expected.ids.tolist()
    assert ours.documents.tolist() == expected.documents.tolist()
    assert (ours.words, ours.unknown) == (expected.words, expected.unknown)


@pytest.mark.parametrize("rules", RULES, ids=str)
@settings(max_examples=40, database=None)
@given(group=GROUPS)
def test_the_same_as_one_by_one(rules: BasicRules, group: list[list[str]]) -> None:
    made = tokenizer(rules)
    assert_same(DocumentEncoder(made).encode(in_bytes(group)), one_by_one(made, group))


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_an_encoder_that_remembers(rules: BasicRules) -> None:
    draw = random.Random(5)
    made, encoder = tokenizer(rules), DocumentEncoder(tokenizer(rules))
    for _ in range(20):
        texts = [tidy("".join(draw.choices(PIECES, k=30))) for _ in range(8)]
        group = [[text] for text in texts if text]
        assert_same(encoder.encode(in_bytes(group)), one_by_one(made, group))


def test_documents_and_sentences_without_a_piece_are_left_out() -> None:
    made = tokenizer(RULES[0])
    group = [["\x01"], ["Hello. \x01"], ["\x01\x7f \u200b", "Mr. A. The 中."]]
    ours = DocumentEncoder(made).encode(in_bytes(group))
    assert_same(ours, one_by_one(made, group))
    assert len(ours.documents) == 2
    nothing = DocumentEncoder(made).encode([])
    assert_same(nothing, one_by_one(made, []))
    assert_same(DocumentEncoder(made).encode([b"\x01"]), nothing)


def test_zero_bytes_are_no_ends_of_documents() -> None:
    encoder = DocumentEncoder(tokenizer(RULES[0]))
    ours = encoder.encode([b"The\0 hello. A", b"\0B"])
    assert_same(ours, encoder.encode([b"The hello. A", b"B"]))
    assert ours.documents.tolist() == [2, 1]


def small_table(**limits: int) -> ChunkTable:
    def lengths(chunks: list[bytes]) -> Encoded:
        sizes = np.array([len(chunk) for chunk in chunks], np.int64)
        ids = np.concatenate([np.frombuffer(chunk, np.uint8) for chunk in chunks])
        return Encoded(ids.astype(np.int32), sizes, sizes.astype(np.uint8))

    return ChunkTable(lengths, **limits)


@pytest.mark.parametrize("limits", [{"slots": 64}, {"most_ids": 100}, {}], ids=str)
def test_a_table_that_forgets_gives_the_same(limits: dict[str, int]) -> None:
    draw = random.Random(3)
    table = small_table(**limits)
    for _ in range(60):
        chunks = [bytes(draw.choices(b"abc", k=draw.randint(1, 20))) for _ in range(50)]
        data = b" ".join(chunks)
        ends = np.cumsum([len(chunk) + 1 for chunk in chunks]) - 1
        starts = ends - [len(chunk) for chunk in chunks]
        ids, counts, traits = table.encode(data, starts, ends)
        assert bytes(ids.tolist()) == b"".join(chunks)
        assert counts.tolist() == traits.tolist() == [len(chunk) for chunk in chunks]


def test_chunks_that_fill_a_table_keep_apart() -> None:
    """More than the smallest table holds, so it grows, and many meet in the same places."""
    table = small_table()
    chunks = [f"{number:05}".encode() for number in range(20_000)]
    data = b" ".join(chunks)
    starts = np.arange(len(chunks)) * 6
    for _ in range(2):
        ids, counts, _ = table.encode(data, starts, starts + 5)
        assert bytes(ids.tolist()) == b"".join(chunks)
        assert set(counts.tolist()) == {5}
