"""Pieces exchanged for better ones: fewer pieces for as many entries."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning import wordpiece
from bertsmith.tokens.learning.counting import measure_words
from bertsmith.tokens.learning.mining import PieceTable
from bertsmith.tokens.learning.wordpiece import learn_wordpiece, refine
from bertsmith.tokens.vocabulary import SPECIALS
from tokens.counted import count_words

LETTERS = ["a", "b", "c", *("##a", "##b", "##c")]


def total(words: dict[str, int], pieces: list[str]) -> int:
    table = PieceTable(pieces)
    return sum(number * table.cost(word) for word, number in words.items())


def test_steps_on_the_way_make_room() -> None:
    words = {"abcab": 9, "cc": 5, "ba": 3, "cb": 2}
    # ab and abc were joined on the way to abcab, and nothing is cut into them now
    joined = [*LETTERS, "ab", "abc", "abcab", "cc"]
    refined = refine(joined, words, fixed=LETTERS, rarest=2)
    assert refined == [*LETTERS, "abcab", "cc", "ba", "cb"]
    assert total(words, refined) == 9 + 5 + 3 + 2


def test_what_nothing_useful_can_replace_stays() -> None:
    words = {"abcab": 9, "cc": 5, "ba": 1}
    joined = [*LETTERS, "ab", "abc", "abcab", "cc"]
    assert sorted(refine(joined, words, fixed=LETTERS, rarest=2)) == sorted(joined)
    assert refine(LETTERS, words, fixed=LETTERS, rarest=2) == LETTERS


def test_only_the_commonest_words_count_in_large_corpora(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordpiece, "_MAX_WORDS", 3)
    words = {"abcab": 9, "cc": 5, "ba": 3, "cb": 2}
    joined = [*LETTERS, "ab", "abc", "abcab", "cc"]
    assert refine(joined, words, fixed=LETTERS, rarest=2) == [*LETTERS, "abcab", "cc", "ba", "abc"]


def test_fewer_pieces_in_novels_than_by_joining_alone(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    novels = sorted((data_folder / "text" / "novels").glob("*.txt"))[::16]
    texts = [novel.read_text(encoding="utf-8", errors="replace")[:80_000] for novel in novels]
    held_out: Counter[str] = count_words(texts[:2], BasicRules(lowercase=True))
    ours = learn_wordpiece(texts[2:], size=2000)
    monkeypatch.setattr(
        "bertsmith.tokens.learning.wordpiece.refine", lambda pieces, *_, **__: pieces
    )
    joined = learn_wordpiece(texts[2:], size=2000)
    assert ours.size == joined.size == 2000
    assert ours.vocabulary[:5] == SPECIALS
    fits = [measure_words(item, held_out) for item in (ours, joined)]
    beyond = [fit.pieces_per_unit - 1 for fit in fits]
    assert beyond[0] < 0.97 * beyond[1]
    assert fits[0].unknown == fits[1].unknown
