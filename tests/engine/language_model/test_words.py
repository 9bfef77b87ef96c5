from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.engine.config import FeatureConfig, Merging, Words
from bertsmith.engine.features import features, merged, window_edges, word_spans
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bounds import close_to_float64

PIECES = ("the", "play", "##ing", "##s", "don", "'", "t", "(", ")", "!", "caf", "##e", "中", "文")


@pytest.fixture(scope="module")
def cutting() -> Tokenizer:
    return Tokenizer((*SPECIALS, *PIECES), BasicRules(lowercase=True))


@pytest.fixture(scope="module")
def small(cutting: Tokenizer) -> Model:
    encoder = EncoderConfig(
        vocabulary=cutting.size, hidden=12, layers=2, heads=3, feed_forward=17, longest=16,
        initial_std=0.3,
    )  # fmt: skip
    return build_model(ModelConfig(encoder=encoder), seed=6).eval()


def example(text: str) -> Example:
    return Example(text=text, text_pair=None, label=None, source="memory", line=1)


def words_of(text: str, words: Words) -> list[str]:
    return [text[begin:end] for begin, end in word_spans(text, words).tolist()]


def test_words_are_parted_by_blanks_or_by_marks_too() -> None:
    text = "The  plays (don't!) 中文 Café"
    assert words_of(text, "blanks") == ["The", "plays", "(don't!)", "中文", "Café"]
    assert words_of(text, "marks") == [
        "The", "plays", "(", "don", "'", "t", "!", ")", "中", "文", "Café",
    ]  # fmt: skip
    assert words_of(" \t", "marks") == []


@settings(max_examples=50)
@given(st.text())
def test_words_cover_all_that_is_not_blank(text: str) -> None:
    for kind in ("blanks", "marks"):
        words = word_spans(text, "marks" if kind == "marks" else "blanks")
        assert "".join(text[a:b] for a, b in words.tolist()) == "".join(text.split())
        assert (words[:, 0] < words[:, 1]).all()
        assert (words[1:, 0] >= words[:-1, 1]).all()


@pytest.mark.parametrize("merging", ["mean", "first", "sum"])
@pytest.mark.parametrize("words", ["blanks", "marks"])
def test_pieces_are_merged_by_word(
    small: Model, cutting: Tokenizer, merging: Merging, words: Words
) -> None:
    text = "Playings (don't!) café 中文 the"
    groups = {
        "blanks": {"Playings": 3, "(don't!)": 6, "café": 2, "中文": 2, "the": 1},
        "marks": {
            "Playings": 3, "(": 1, "don": 1, "'": 1, "t": 1, "!": 1, ")": 1, "café": 2, "中": 1,
            "文": 1, "the": 1,
        },
    }[words]  # fmt: skip
    (tokens,) = features(small, cutting, [example(text)], FeatureConfig(pool="token"))
    config = FeatureConfig(pool=f"word-{merging}", words=words)
    (got,) = features(small, cutting, [example(text)], config)
    assert got.names == tuple(groups)
    at = 1
    for row, count in zip(got.vectors, groups.values(), strict=True):
        part = tokens.vectors[at : at + count].astype(np.float64)
        expected = {"mean": part.mean(0), "first": part[0], "sum": part.sum(0)}[merging]
        close_to_float64(row, expected)
        at += count
    assert at == len(tokens.vectors) - 1


def test_tokens_are_named_and_placed(small: Model, cutting: Tokenizer) -> None:
    (got,) = features(small, cutting, [example("The plays")], FeatureConfig(pool="token"))
    assert got.names == ("[CLS]", "the", "play", "##s", "[SEP]")
    assert got.spans.tolist() == [[0, 0], [0, 3], [4, 8], [8, 9], [0, 0]]


def test_words_that_are_cut_off_have_no_row(small: Model, cutting: Tokenizer) -> None:
    text = "the " * 13 + "playings the"
    cut, whole = (
        next(
            features(
                small, cutting, [example(text)], FeatureConfig(pool="word-mean", truncation=long)
            )
        )
        for long in ("cut", "windows")
    )
    assert cut.names == ("the",) * 13 + ("playings",)
    assert cut.left_out == 3
    assert whole.names == ("the",) * 13 + ("playings", "the")
    assert whole.left_out == 0


def test_a_piece_that_begins_with_a_blank_belongs_to_the_next_word() -> None:
    # as byte-level and SentencePiece pieces do: "▁ab", "c", "▁", "d", and "▁" at the end
    spans = np.array([[0, 2], [2, 3], [3, 4], [4, 5], [5, 6]])
    vectors = np.eye(5, dtype=np.float32)
    got, words = merged(vectors, spans, word_spans("abc d ", "blanks"), "sum")
    assert words.tolist() == [[0, 3], [4, 5]]
    assert got.tolist() == [[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]]


def test_a_text_without_pieces_has_no_rows(small: Model, cutting: Tokenizer) -> None:
    (got,) = features(small, cutting, [example("\u200b")], FeatureConfig(pool="word-mean"))
    assert got.vectors.shape == (0, 12)
    assert got.names == ()


@given(st.lists(st.booleans(), max_size=200), st.integers(1, 20))
def test_windows_cover_all_and_begin_with_words(continues: list[bool], longest: int) -> None:
    marks = np.array(continues, bool)
    edges = window_edges(marks, longest)
    sizes = np.diff(edges)
    assert edges[0] == 0
    assert edges[-1] == len(marks)
    assert len(marks) == 0 or sizes.min() >= 1
    assert len(marks) == 0 or sizes.max() <= longest
    for before, begin in pairwise(edges[:-1]):
        # where a window begins inside a word, no word began in the half before it
        half = before + (begin - before) // 2 + 1
        assert not marks[begin] or marks[half : begin + 1].all()
