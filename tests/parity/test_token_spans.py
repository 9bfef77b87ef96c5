"""Where pieces stand in a text equals the offset mapping of transformers' BertTokenizerFast.

The compiled tokenizer has other ids than the reference for some characters; ours are the
reference's, so places are compared where the two have the same ids, and that must be nearly
everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from transformers import BertTokenizerFast

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from parity.test_token_ids import ALL_RULES, HOSTILE_LINES, character_vocabulary, real_lines


def compiled(vocabulary: Iterable[str], rules: BasicRules, folder: Path) -> BertTokenizerFast:
    path = folder / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in vocabulary), encoding="utf-8")
    return BertTokenizerFast(
        str(path),
        do_lower_case=rules.lowercase,
        strip_accents=rules.strip_accents,
        tokenize_chinese_chars=rules.space_cjk,
    )


def assert_equal_places(ours: Tokenizer, theirs: BertTokenizerFast, texts: Sequence[str]) -> int:
    """Compare places where ids are the same; returns the number of texts where they are not."""
    differing = 0
    expected = theirs(list(texts), return_offsets_mapping=True, add_special_tokens=False)
    of_each = zip(
        texts, ours.encode(texts), expected["input_ids"], expected["offset_mapping"], strict=True
    )
    for text, ids, their_ids, places in of_each:
        found = ours.encode_spans(text)
        assert found.ids.tolist() == ids.tolist(), repr(text)
        if their_ids == ids.tolist():
            spans = list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))
            assert spans == places, repr(text)
        else:
            differing += 1
    return differing


def readable(text: str) -> bool:
    """Whether the compiled tokenizer takes a text at all."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


@pytest.mark.parametrize("rules", ALL_RULES, ids=str)
def test_hostile_lines_and_their_parts(rules: BasicRules, tmp_path: Path) -> None:
    lines = [line for line in HOSTILE_LINES if readable(line)]
    vocabulary = character_vocabulary("".join(lines))
    ours, theirs = Tokenizer(vocabulary, rules), compiled(vocabulary, rules, tmp_path)
    assert_equal_places(ours, theirs, lines)
    parts = [f"Ab {part} éç" for line in lines for part in line.split()[::4]]
    differing = assert_equal_places(ours, theirs, parts)
    # in cased text the reference composes what the compiled tokenizer leaves as it is
    assert differing < len(parts) * (0.05 if rules.strips else 0.1)


@pytest.mark.parametrize("rules", ALL_RULES[:4], ids=str)
def test_characters_side_by_side(rules: BasicRules, tmp_path: Path) -> None:
    """What composes, decomposes, grows when lowered or goes, beside anything else.

    But for marks that are no accents and are put before those: the compiled tokenizer then gives
    each the place of another.
    """
    letters = "a B é E\u0301 e\u0323\u0302 e\u0302\u0323 \u0301 İ ẞ ﬁ ŉ Å \u212b 漢 \uf900 한"
    marks = "[MASK] [SEP] [ ] . ¿ \u1112\u1161 \u0345 ᾼ Σ \u0f73"
    gone = ("\x00", "\x0b", "\x85", "\u200b", "\ufffd", " ", "\u3000")
    draw = random.Random(8)
    choices = (*letters.split(), *marks.split(), *gone)
    texts = ["".join(draw.choices(choices, k=draw.randint(1, 9))) for _ in range(1000)]
    vocabulary = character_vocabulary("".join(texts))
    ours, theirs = Tokenizer(vocabulary, rules), compiled(vocabulary, rules, tmp_path)
    differing = assert_equal_places(ours, theirs, texts)
    assert differing < len(texts) * (0.2 if rules.strips else 0.9)


@pytest.mark.parametrize("number", [500, pytest.param(20_000, marks=pytest.mark.faults)])
@pytest.mark.parametrize("casing", ["uncased", "cased"])
def test_places_in_real_lines(data_folder: Path, casing: str, number: int) -> None:
    path = data_folder / "vocab" / f"bert-base-{casing}-vocab.txt"
    ours = Tokenizer.load(path)
    theirs = BertTokenizerFast(str(path), do_lower_case=ours.lowercase)
    lines = real_lines(data_folder, number)
    assert len(lines) == number
    assert assert_equal_places(ours, theirs, lines) <= 20


def test_marks_in_the_order_of_a_keyboard() -> None:
    """Arabic shadda and Hebrew dagesh are typed before the vowel, and composition puts them after.

    A piece spans all its characters, whichever of them comes first in the text.
    """
    shadda, fatha, dagesh, patah = "\u0651", "\u064e", "\u05bc", "\u05b7"
    pieces = [f"\u0645{fatha}{shadda}", "\u0628", f"##{fatha}{shadda}", f"\u05d1{patah}{dagesh}"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, "##\u0645"]
    ours = Tokenizer(vocabulary, BasicRules(lowercase=True, strip_accents=False))
    text = (
        f"\u0645{shadda}{fatha} \u0628{shadda}{fatha}\u0645 \u05d1{dagesh}{patah} x{dagesh}{patah}"
    )
    found = ours.encode_spans(text)
    assert found.ids.tolist() == [5, 6, 7, 9, 8, 1]
    assert found.starts.tolist() == [0, 4, 5, 7, 9, 13]
    assert found.ends.tolist() == [3, 5, 7, 8, 12, 16]
