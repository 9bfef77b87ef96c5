"""Texts and pairs are surrounded and cut as the tokenizers of transformers do it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import AlbertTokenizerFast, BertTokenizer, RobertaTokenizer

from bertsmith.batches.truncation import encode_pair, second_begins
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS

TEXTS = ["some words of a text, and some more words of it"] * 3

Reference = type[BertTokenizer | RobertaTokenizer | AlbertTokenizerFast]


def make(kind: str) -> tuple[Tokenizer, Reference]:
    if kind == "wordpiece":
        return Tokenizer([*SPECIALS, *"abcdefg"], BasicRules(lowercase=True)), BertTokenizer
    if kind == "byte-bpe":
        return learn_byte_bpe(TEXTS, size=270), RobertaTokenizer
    return learn_unigram(TEXTS, size=60), AlbertTokenizerFast


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "unigram"])
def test_pairs_are_cut_as_transformers_cuts_them(kind: str, tmp_path: Path) -> None:
    ours, reference = make(kind)
    assert ours.kind == kind
    ours.save(tmp_path)
    theirs = reference.from_pretrained(tmp_path)
    for longest in (6, 7, 11, 16):
        for first in range(14):
            for second in (None, *range(14)):
                texts = [np.arange(first) + 5, np.arange(second or 0) + 105]
                pair = second is not None
                ids, segments = encode_pair(
                    ours, texts[0], texts[1] if pair else None, longest=longest
                )
                expected = theirs.prepare_for_model(
                    *(text.tolist() for text in texts[: 1 + pair]),
                    truncation="longest_first",
                    max_length=longest,
                    return_token_type_ids=True,
                )
                assert ids.tolist() == expected["input_ids"]
                assert segments.tolist() == expected["token_type_ids"]
                assert len(ids) <= longest
                if second and first + second + ours.specials_around(pair=True) <= longest:
                    assert ids[second_begins(ours, first)] == 105
