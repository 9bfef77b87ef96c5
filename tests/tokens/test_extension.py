"""Pieces added to a vocabulary: what they save, against brute force and against naive choices."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizer, BertTokenizerFast

from bertsmith.core.errors import VocabularyError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.counting import measure_fit, measure_words
from bertsmith.tokens.learning.extension import extend_vocabulary
from bertsmith.tokens.learning.mining import (
    PieceMiner,
    PieceTable,
    WordSplit,
    frequent_lengths,
    rarest_worth_adding,
)
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS, Pieces
from bertsmith.tokens.wordpiece import WordPiece
from tokens.counted import count_words

RULES = BasicRules(lowercase=True)


def total(words: dict[str, int], vocabulary: list[str]) -> int:
    """Pieces by the tokenizer itself; [UNK] counts as its characters."""
    cut = WordPiece(Pieces(["[UNK]", *vocabulary]), 0).ids
    costs = {word: cut(word) for word in words}
    return sum(
        number * (len(word) if costs[word] == [0] else len(costs[word]))
        for word, number in words.items()
    )


def every_stretch(words: dict[str, int], rarest: int) -> list[str]:
    """All beginnings and continuations that occur often enough."""
    counts: Counter[str] = Counter()
    for word, number in words.items():
        for start in range(len(word)):
            for end in range(start + 1, len(word) + 1):
                counts["##" * (start > 0) + word[start:end]] += number
    return [piece for piece, number in counts.items() if number >= rarest]


def invented_words(seed: int) -> tuple[dict[str, int], list[str]]:
    """Words over few letters, so that pieces overlap and recur in a word, and some pieces."""
    random = np.random.default_rng(seed)
    words = {
        "".join(random.choice(list("abc"), random.integers(1, 9))): int(random.integers(1, 9))
        for _ in range(40)
    }
    # in every other case a letter cannot be told, so some words are [UNK]
    letters = "ab" if seed % 2 else "abc"
    some = random.choice(every_stretch(words, 1), 12).tolist()
    return words, sorted({*letters, *("##" + letter for letter in letters), *some})


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rarest", [1, 7])
def test_each_piece_is_the_best_of_all_and_saves_what_is_told(seed: int, rarest: int) -> None:
    words, vocabulary = invented_words(seed)
    several = {word: number for word, number in words.items() if word not in vocabulary}
    candidates = every_stretch(several, rarest)
    before = total(words, vocabulary)
    mined = list(PieceMiner(words, vocabulary, rarest=rarest).mine(8))
    assert mined
    for item in mined:
        others = [piece for piece in candidates if piece not in vocabulary]
        best = max(before - total(words, [*vocabulary, piece]) for piece in others)
        vocabulary.append(item.piece)
        after = total(words, vocabulary)
        assert item.saved == before - after == best > 0
        before = after
    if len(mined) < 8:
        assert all(total(words, [*vocabulary, piece]) >= before for piece in candidates)


def test_a_piece_beyond_those_a_word_is_cut_into_changes_what_others_save() -> None:
    # adef is a ##de ##f; ad saves nothing but with ##ef, which adef does not meet by itself
    words = {"adef": 9, "xyef": 20, "ef": 1}
    pieces = [*"axe", *(f"##{item}" for item in "ydef"), "##de"]
    mined = list(PieceMiner(words, pieces, rarest=1).mine(9))
    for item in mined:
        before = total(words, pieces)
        pieces.append(item.piece)
        assert item.saved == before - total(words, pieces)


def test_a_piece_that_spoils_other_words_is_charged_for_it() -> None:
    # "ab" would cut abc... as ab ##c ... where it was a ##bcd
    pieces = [*"abcd", *(f"##{item}" for item in "abcd"), "##bcd"]
    split = WordSplit("abcd", PieceTable(pieces).matches("abcd"))
    assert split.savings(bytes([2, 0, 0, 0])) == {"ab": -1}
    words = {"abcd": 10, "ab": 9}
    (mined,) = PieceMiner(words, pieces, rarest=1).mine(1)
    assert (mined.piece, mined.saved) == ("abcd", 10)
    assert not list(PieceMiner({"abcd": 10, "ab": 10}, [*pieces, "abcd"], rarest=99).mine(1))


def test_long_words_take_a_few_calls_for_each_candidate() -> None:
    """Words of 70 letters of DNA took 9 ms each, and 1,500 of them more than a minute."""
    random = np.random.default_rng(5)
    words = {"".join(random.choice(list("ACGT"), 96)): 1 for _ in range(5)}
    letters = [*"ACGT", *(f"##{item}" for item in "ACGT")]
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        miner = PieceMiner(words, letters, rarest=2)
    finally:
        sys.setprofile(None)
    assert next(miner.mine(1)).saved > 0
    # 29 for each letter; 1,039 if every candidate walks through the rest of its word
    assert calls < 100 * sum(map(len, words))


def test_stretches_are_counted_by_where_they_stand() -> None:
    lengths, offsets = frequent_lengths(["abab", "ab", "xab"], [3, 2, 1], rarest=4)
    assert offsets == [0, 4, 6]
    # ab begins a word 5 times and goes on one 4 times, ba and aba less than 4 times
    assert list(lengths) == [2, 1, 2, 1, 2, 1, 0, 2, 1]


def test_rare_candidates_are_left_out_by_what_whole_words_save() -> None:
    words = {"abcd": 400, "dcba": 320, "bbbb": 2, "cccc": 1}
    letters = [*"abcd", *(f"##{item}" for item in "abcd")]
    assert rarest_worth_adding(words, letters, count=2, rarest=5) == 320 * 3 // 8
    assert rarest_worth_adding(words, letters, count=3, rarest=5) == 5
    assert rarest_worth_adding(words, letters, count=4, rarest=3) == 3


def base_tokenizer() -> Tokenizer:
    pieces = ["[unused0]", "[unused1]", *"abcdefgh", *(f"##{item}" for item in "abcdefgh"), "##gh"]
    return Tokenizer((*SPECIALS, *pieces), RULES)


def test_new_pieces_go_behind_the_old_ones_and_know_what_they_replace() -> None:
    old = base_tokenizer()
    words = {"abcgh": 50, "dcgh": 6, "ecgh": 6, "fcgh": 6, "łh": 30, "rare": 4}
    words |= {f"{item}bł": 2 for item in "acdf"}
    made = extend_vocabulary(old, words, count=4)
    assert made.tokenizer.vocabulary[: old.size] == old.vocabulary
    assert [item.piece for item in made.added] == ["abcgh", "łh", "##cgh", "##bł"]
    assert made.tokenizer.vocabulary[old.size :] == ("abcgh", "łh", "##cgh", "##bł")
    ids = {piece: number for number, piece in enumerate(old.vocabulary)}
    expected = (("a", "##b", "##c", "##gh"), ("[UNK]",), ("##c", "##gh"), ("[UNK]",))
    assert made.replaced == tuple(tuple(ids[piece] for piece in pieces) for pieces in expected)
    assert made.tokenizer.pieces("abcgh dcgh łh") == ["abcgh", "d", "##cgh", "łh"]
    # fewer than were requested: nothing else occurs five times and saves anything
    assert len(extend_vocabulary(old, words, count=40).added) < 10


def test_nothing_to_add() -> None:
    with pytest.raises(VocabularyError, match="no piece that occurs 5 times"):
        extend_vocabulary(base_tokenizer(), {"a": 9, "abc": 4}, count=3)
    for count in (0, 1_000_000):
        with pytest.raises(VocabularyError, match="cannot be added"):
            extend_vocabulary(base_tokenizer(), {"abc": 9}, count=count)


def test_words_are_measured_as_texts_are() -> None:
    made = learn_wordpiece(["the lowest lower low widest wide"] * 9, size=40)
    texts = ["The lowest łółw, lower and lower", "wide!"]
    stretches = Counter(" ".join(texts).split())
    assert measure_words(made, stretches) == measure_fit(made, texts)


def test_the_extended_folder_gives_equal_ids_in_transformers(tmp_path: Path) -> None:
    words = {"abcgh": 50, "dcgh": 6, "ecgh": 6, "fcgh": 6, "łh": 30, "hł": 7}
    made = extend_vocabulary(base_tokenizer(), words, count=4).tokenizer
    made.save(tmp_path)
    texts = ["Abcgh dcgh hcgh.", "łh hł zł", "abcghcgh [MASK] ecghł", "[unused1] a"]
    ours = [ids.tolist() for ids in made.encode(texts)]
    for kind in (BertTokenizer, BertTokenizerFast):
        theirs = kind.from_pretrained(tmp_path)
        assert [theirs.encode(text, add_special_tokens=False) for text in texts] == ours
        assert len(theirs) == made.size
    compiled = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert [token["content"] for token in compiled["added_tokens"]] == list(SPECIALS)
    assert "##cgh" in compiled["model"]["vocab"]


def test_better_than_the_most_frequent_unknown_words_on_held_out_novels(data_folder: Path) -> None:
    tokenizer = Tokenizer.load(data_folder / "vocab" / "bert-base-uncased-vocab.txt")
    rules = tokenizer.rules
    assert isinstance(rules, BasicRules)
    novels = sorted((data_folder / "text" / "novels").glob("*.txt"))[::16]
    counts = [
        count_words([path.read_text(encoding="utf-8", errors="replace")[:200_000]], rules)
        for path in novels
    ]
    held_out, mined = counts[0], sum(counts[1:], Counter[str]())
    known = set(tokenizer.vocabulary)
    naive = [word for word, _ in mined.most_common() if word not in known][:500]
    rival = Tokenizer((*tokenizer.vocabulary, *naive), tokenizer.rules)
    made = extend_vocabulary(tokenizer, mined, count=500)
    assert len(made.added) == len(naive) == 500
    before, theirs, ours = (
        measure_words(item, held_out).pieces for item in (tokenizer, rival, made.tokenizer)
    )
    assert before > theirs > ours
    cuts = [PieceTable(item.vocabulary) for item in (tokenizer, made.tokenizer)]
    spent = [sum(number * cut.cost(word) for word, number in mined.items()) for cut in cuts]
    assert spent[0] - spent[1] == sum(item.saved for item in made.added)
