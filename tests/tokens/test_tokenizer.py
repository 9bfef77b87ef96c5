"""Texts become ids and ids texts; the attributes other parts of the program read."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

from bertsmith.core.errors import VocabularyError
from bertsmith.tokens import vocabulary
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.normalisation import UnigramRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.unigram import joined_unknowns
from bertsmith.tokens.vocabulary import UNIGRAM_SPECIALS

VOCABULARY = (
    *("[PAD]", "[unused0]", "the", "##s", "[UNK]", "[CLS]", "hand", "[SEP]", "##ed", "[MASK]"),
    *("un", "##hand", ",", "[", "]", "mask", "cafe", "é"),
)


def tokenizer(*, lowercase: bool = True) -> Tokenizer:
    return Tokenizer(VOCABULARY, BasicRules(lowercase=lowercase))


def test_longest_pieces_first() -> None:
    assert tokenizer().pieces("Unhanded, hands the  Thé hx") == [
        *("un", "##hand", "##ed", ",", "hand", "##s", "the", "the", "[UNK]"),
    ]


def test_encode_gives_an_array_a_text_in_order() -> None:
    encoded = tokenizer().encode(["the hands", "", "un"])
    assert [ids.dtype for ids in encoded] == [np.int32] * 3
    assert [ids.tolist() for ids in encoded] == [[2, 6, 3], [], [10]]
    assert tokenizer().encode([]) == []


def test_literal_special_tokens_by_choice() -> None:
    text = "the[MASK]un [SEP] [mask]"
    as_specials, as_text = (
        tokenizer().encode([text], specials_in_text=choice)[0].tolist() for choice in (True, False)
    )
    assert as_specials == [2, 9, 10, 7, 13, 15, 14]
    assert as_text == [2, 13, 15, 14, 10, 13, 4, 14, 13, 15, 14]


@pytest.mark.parametrize("lowercase", [True, False])
def test_plain_text_never_yields_special_ids(lowercase: bool) -> None:
    made = tokenizer(lowercase=lowercase)
    text = "[CLS] [MA\x00SK] [MAS\u212a] [SEP][PAD] [MA\x1cSK] [MA\u200bSK]"
    (ids,) = made.encode([text], specials_in_text=False)
    assert len(ids) > 10
    assert not made.special_ids - {made.unknown_id} & set(ids.tolist())


def test_words_over_a_hundred_characters_are_unknown() -> None:
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "x", "##x", "y" * 101)
    made = Tokenizer(pieces, BasicRules(lowercase=False))
    hundred, longer, whole = made.encode(["x" * 100, "x" * 101, "y" * 101])
    assert hundred.tolist() == [5] + [6] * 99
    assert longer.tolist() == whole.tolist() == [1]


def test_a_text_of_a_hundred_thousand_words() -> None:
    (ids,) = tokenizer().encode(["the hands \n" * 50_000])
    assert ids.tolist() == [2, 6, 3] * 50_000


def test_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"the{mark} hands{mark} un{mark}" for mark in ("", ",", ",,", "é")] * 3
    expected = [ids.tolist() for ids in tokenizer().encode(texts)]
    monkeypatch.setattr(vocabulary, "_CACHE_SIZE", 2)
    monkeypatch.setattr(vocabulary, "_MAX_CACHED_LENGTH", 4)
    assert [ids.tolist() for ids in tokenizer().encode(texts)] == expected


def test_decode_joins_pieces() -> None:
    made = tokenizer()
    assert made.decode(made.encode(["unhanded, hands [MASK]"])[0].tolist()) == (
        "unhanded , hands [MASK]"
    )
    assert made.decode([]) == ""
    with pytest.raises(VocabularyError, match="18"):
        made.decode([18])


def test_attributes() -> None:
    made = tokenizer()
    assert (made.size, made.lowercase) == (18, True)
    assert (made.pad_id, made.unknown_id, made.cls_id, made.sep_id, made.mask_id) == (0, 4, 5, 7, 9)
    assert made.special_ids == {0, 4, 5, 7, 9}
    assert np.flatnonzero(made.continues).tolist() == [3, 8, 11]
    assert made.ordinary_ids.tolist() == [2, 3, 6, 8, 10, 11, 12, 13, 14, 15, 16, 17]


def test_the_fingerprint_tells_vocabularies_and_rules_apart() -> None:
    swapped = (*VOCABULARY[:2], VOCABULARY[3], VOCABULARY[2], *VOCABULARY[4:])
    made = {
        tokenizer().fingerprint,
        tokenizer(lowercase=False).fingerprint,
        Tokenizer(swapped, BasicRules(lowercase=True)).fingerprint,
        Tokenizer(VOCABULARY, BasicRules(lowercase=True, strip_accents=False)).fingerprint,
        Tokenizer(VOCABULARY, BasicRules(lowercase=True, space_cjk=False)).fingerprint,
    }
    assert len(made) == 5
    # None means: as the casing, so these are the same tokenizer
    spelled_out = Tokenizer(VOCABULARY, BasicRules(lowercase=True, strip_accents=True))
    assert spelled_out.fingerprint == tokenizer().fingerprint


def test_a_worker_process_gets_an_equal_tokenizer() -> None:
    made = tokenizer(lowercase=False)
    made.encode(["the hands"])
    copy = pickle.loads(pickle.dumps(made))
    assert copy.fingerprint == made.fingerprint
    assert copy.encode(["the hands"])[0].tolist() == [2, 6, 3]


def test_encoding_needs_neither_torch_nor_compiled_tokenizers() -> None:
    code = (
        "import sys, bertsmith.tokens.tokenizer, bertsmith.tokens.learning.counting\n"
        "sys.exit(bool({'torch', 'tokenizers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_long_text_of_unknown_characters_is_one_piece_in_time() -> None:
    began = time.process_time()
    text = "文" * 400_000
    assert joined_unknowns(f"a{text}b{text}", lambda piece: piece == "文") == ["a", text, "b", text]
    assert time.process_time() - began < 5  # what grew with the square would take minutes


def test_thousands_of_pieces_that_are_always_split_off_are_found_in_time() -> None:
    began = time.process_time()
    letters, symbols = list("\u2581abc<"), [f"<symbol{number}>" for number in range(10_000)]
    vocabulary = (*UNIGRAM_SPECIALS, *letters, *symbols)
    first = len(vocabulary) - len(symbols)
    rules = UnigramRules(
        scores=(0.0,) * len(vocabulary), wanted=frozenset(range(first, len(vocabulary)))
    )
    text = "abc<" * 8_000 + "<symbol77>"
    (ids,) = Tokenizer(vocabulary, rules).encode([text])
    assert ids.tolist() == [5, *[6, 7, 8, 9] * 8_000, first + 77]
    assert time.process_time() - began < 5  # what grew with the product would take minutes
