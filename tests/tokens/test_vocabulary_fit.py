"""Pieces a word and the share of unknown words."""

from __future__ import annotations

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.statistics import measure_fit
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS


def test_counts_by_hand() -> None:
    made = Tokenizer((*SPECIALS, "the", "hand", "##s", "##ed", "["), BasicRules(lowercase=True))
    fit = measure_fit(made, iter(["The hands", "handed, the [MASK", ""]))
    # the | hand s | hand ed | , | the | [ | mask
    assert (fit.words, fit.pieces, fit.unknown) == (7, 9, 2)
    assert fit.pieces_per_word == 9 / 7
    assert fit.unknown_share == 2 / 7


def test_no_text_is_no_division_by_zero() -> None:
    fit = measure_fit(Tokenizer((*SPECIALS, "a"), BasicRules(lowercase=False)), [])
    assert (fit.pieces_per_word, fit.unknown_share) == (0.0, 0.0)
