"""The rules that cut text into words, an example each; parity/ has the reference."""

from __future__ import annotations

import pytest

from bertsmith.tokens.basic import BasicRules

UNCASED = BasicRules(lowercase=True)
CASED = BasicRules(lowercase=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't  stop.", ["don", "'", "t", "stop", "."]),
        ("a\x00b\x07c\u200bd\ufffde\ud800f", ["abcdef"]),
        ("a\tb\nc\rd\u00a0e\u3000f\u2028g", list("abcdefg")),
        ("naïve Å E\u0301", ["naive", "a", "e"]),
        ("x漢字y", ["x", "漢", "字", "y"]),
        ("カナ", ["カナ"]),
        ("ΟΔΟΣ İ", ["οδοσ", "i"]),
        ("$5^2 “q” €", ["$", "5", "^", "2", "“", "q", "”", "€"]),
    ],
)
def test_uncased(text: str, words: list[str]) -> None:
    assert UNCASED.words(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [("Naïve E\u0301", ["Naïve", "É"]), ("E\u200b\u0301", ["É"]), ("\u212a", ["K"])],
)
def test_cased_text_is_composed_and_keeps_accents(text: str, words: list[str]) -> None:
    assert CASED.words(text) == words


def test_the_switches() -> None:
    assert BasicRules(lowercase=True, strip_accents=False).words("Éa") == ["éa"]
    assert BasicRules(lowercase=False, strip_accents=True).words("Éa") == ["Ea"]
    assert BasicRules(lowercase=False, space_cjk=False).words("x漢字") == ["x漢字"]


def test_kept_words_stay_whole() -> None:
    kept = frozenset({"[MASK]"})
    assert CASED.words_keeping("[MA\u200bSK] é[MASK]", kept) == ["[MASK]", "é", "[", "MASK", "]"]
    stripping = BasicRules(lowercase=False, strip_accents=True)
    assert stripping.words_keeping("[MÁSK]", kept) == ["[MASK]"]
