"""Vocabularies learned from text."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from bertsmith.core.errors import VocabularyError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning import counting
from bertsmith.tokens.learning.counting import BoundedCounter, WordCounter, measure_fit
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from tokens.counted import count_words

TEXTS = (
    "The lower the newest widest lowest, the WIDER the newer.",
    "Déjà vu: the new and the low, the wide and the newest!",
    "lowered lowering newest newer widened widening",
) * 7


def test_special_tokens_first_then_characters_then_joined_pieces() -> None:
    made = learn_wordpiece(TEXTS, size=60)
    assert made.vocabulary[:5] == SPECIALS
    assert (made.pad_id, made.unknown_id, made.cls_id, made.sep_id, made.mask_id) == tuple(range(5))
    assert made.size == 60
    lengths = [len(piece.removeprefix("##")) for piece in made.vocabulary[5:]]
    first_joined = next(place for place, length in enumerate(lengths) if length > 1)
    assert set(lengths[:first_joined]) == {1}
    assert min(lengths[first_joined:]) > 1
    assert "the" in made.vocabulary
    assert made.pieces("The newest") == ["the", "newest"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_rules_are_applied_and_every_text_can_be_told(lowercase: bool) -> None:
    made = learn_wordpiece(TEXTS, size=200, lowercase=lowercase, strip_accents=lowercase)
    assert made.lowercase is lowercase
    assert ("T" in made.vocabulary, "é" in "".join(made.vocabulary)) == (not lowercase,) * 2
    fit = measure_fit(made, TEXTS)
    assert fit.unknown == 0
    assert fit.size.words == 7 * (10 + 12 + 6)
    marks = 7 * (2 + 3)
    assert 1 <= (fit.pieces - marks) / fit.size.words < 1.2


def test_learning_is_the_same_in_every_process() -> None:
    code = (
        "from bertsmith.tokens.learning.wordpiece import learn_wordpiece\n"
        "texts = [' '.join(f'{a}{b}{c}' for c in 'xyzéß' for b in 'uvw') for a in 'abcdefghi']\n"
        "print(learn_wordpiece(texts * 3, size=150).fingerprint)"
    )
    prints = {
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
        for _ in range(3)
    }
    assert len(prints) == 1


def test_rare_characters_are_left_out() -> None:
    made = learn_wordpiece([*TEXTS, "żółw"], size=120, character_coverage=0.99, min_frequency=1)
    singles = {p.removeprefix("##") for p in made.vocabulary[5:] if len(p.removeprefix("##")) == 1}
    assert "ł" not in singles
    assert measure_fit(made, ["żółw the"]).unknown == 1
    # as rare, but an alphabet that is cheap is whole
    whole = learn_wordpiece([*TEXTS, "żółw"], size=1200, min_frequency=1)
    assert "ł" in whole.vocabulary


def test_pairs_met_too_rarely_are_not_joined() -> None:
    texts = ["abab " * 3, "cdcd"]
    assert {"abab", "cdcd"} <= set(learn_wordpiece(texts, size=40, min_frequency=1).vocabulary)
    careful = learn_wordpiece(texts, size=40, min_frequency=3)
    assert ("abab" in careful.vocabulary, "cdcd" in careful.vocabulary) == (True, False)
    assert careful.pieces("abab cdcd") == ["abab", "c", "##d", "##c", "##d"]


def test_a_stream_is_read_once() -> None:
    read: list[str] = []

    def stream() -> Iterator[str]:
        for text in TEXTS:
            read.append(text)
            yield text

    assert learn_wordpiece(stream(), size=80).vocabulary == (
        learn_wordpiece(list(TEXTS), size=80).vocabulary
    )
    assert len(read) == len(TEXTS)


def test_counting_forgets_the_rarest_when_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_MAX_CHUNKS", 3)
    counts = count_words(["a a a b b c", "d", "a e"], BasicRules(lowercase=True))
    assert counts["a"] == 4
    assert len(counts) <= 3


def test_counting_when_full_looks_at_new_words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """All two million were looked at again for nearly every text."""
    monkeypatch.setattr(counting, "_MAX_CHUNKS", 500)
    looked_at = 0

    def size(chunk: str) -> int:
        nonlocal looked_at
        looked_at += 1
        return len(chunk)

    counter = BoundedCounter(size=size)
    counter.add([f"often{number}" for number in range(498)] * 3)
    for number in range(500):
        counter.add([f"new{number}", f"once{number}"] + [f"twice{number}"] * (number % 3))
    assert len(counter.counts) <= 500
    assert sum(chunk.startswith("often") for chunk in counter.counts) == 498
    assert looked_at < 5000


def test_long_words_are_bounded_by_their_letters() -> None:
    """The trainer took 6 GB for two million distinct ids of 32 digits."""
    counter = WordCounter()
    for start in range(0, 250_000, 10_000):
        distinct = (f"{number:0100}" for number in range(start, start + 10_000))
        counter.add(" ".join(["often", *distinct]))
    assert sum(map(len, counter.stretches)) <= 20_000_000
    assert counter.stretches["often"] == 25


@pytest.mark.parametrize("learn", [learn_wordpiece, learn_unigram])
def test_characters_of_forgotten_words_are_pieces_if_any_text_gives_them(
    learn: Callable[..., Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_MAX_CHUNKS", 9)
    texts = [*["to be or not to be"] * 9, *(f"{number}X\0z" for number in range(40))]
    pieces = learn(texts, size=60).vocabulary
    assert {"x", "z", "7"} <= {*pieces}
    assert "\0" not in pieces


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [
        ([], 100, "no text"),
        (["", " \n", "\x00"], 100, "no text"),
        (["y" * 101], 100, "all words have more than 100 characters"),
        (TEXTS, 5, "vocabulary of 5"),
        (TEXTS, 2_000_000, "vocabulary of 2000000"),
        (TEXTS, 20, "alphabet"),
    ],
)
def test_what_cannot_be_learned(texts: list[str], size: int, message: str) -> None:
    with pytest.raises(VocabularyError, match=message) as caught:
        learn_wordpiece(texts, size=size)
    assert caught.value.remedy
