"""Pieces a word, or a character, and the share of unknown pieces: one definition everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from bertsmith.store.preparing import prepare_store
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.counting import VocabularyFit, measure_fit
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS

SPACED = ("The harbour lies still, and the boats lie still.", "She counted 12 boats; he, none.")
UNSPACED = ("港口很安静，船也很安静。", "她数了十二条船，他一条也没有数。", "ABC 船")
MODELS = {"wordpiece": "bert", "byte-bpe": "roberta", "unigram": "albert"}


def learned(kind: str, texts: tuple[str, ...]) -> Tokenizer:
    many = [*texts] * 3
    if kind == "byte-bpe":
        return learn_byte_bpe(many, size=300)
    return (learn_wordpiece if kind == "wordpiece" else learn_unigram)(many, size=70)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("texts", [SPACED, UNSPACED])
def test_as_counted_by_transformers(kind: str, texts: tuple[str, ...], tmp_path: Path) -> None:
    made = learned(kind, texts)
    made.save(tmp_path)
    (tmp_path / "config.json").write_text(f'{{"model_type": "{MODELS[kind]}"}}')
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    given = [*texts, "qq ~ 鱷 the"]
    ids = [theirs(text, add_special_tokens=False)["input_ids"] for text in given]
    pieces = sum(map(len, ids))
    unknown = sum(text.count(theirs.unk_token_id) for text in ids)
    fit = measure_fit(made, given)
    plain = [len(text.split()) for text in given], [len("".join(text.split())) for text in given]
    words, characters = map(sum, plain)
    assert fit.size.unit == ("word" if texts is SPACED else "character")
    assert fit.pieces_per_unit == pieces / (words if texts is SPACED else characters)
    assert fit.unknown_share == unknown / pieces
    assert (unknown > 0) == (kind != "byte-bpe")
    # the store counts the same
    document = Document(source="a", line=1, paragraphs=tuple(given))
    index = prepare_store([document], made, tmp_path / "store", held_out=0.0)
    assert fit == VocabularyFit(size=index.text, pieces=index.tokens, unknown=index.unknown)


def test_counts_by_hand() -> None:
    made = Tokenizer((*SPECIALS, "the", "hand", "##s", "##ed", "["), BasicRules(lowercase=True))
    fit = measure_fit(made, iter(["The hands", "handed, the [MASK", ""]))
    # the | hand s | hand ed | , | the | [ | mask
    assert (fit.size.words, fit.pieces, fit.unknown) == (5, 9, 2)
    assert fit.describe() == "1.80 pieces per word"
    assert fit.unknown_share == 2 / 9


def test_no_text_is_no_division_by_zero() -> None:
    fit = measure_fit(Tokenizer((*SPECIALS, "a"), BasicRules(lowercase=False)), [])
    assert (fit.pieces_per_unit, fit.unknown_share) == (0.0, 0.0)
