"""Token ids equal those of transformers' slow BertTokenizer, on any string."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizer

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning import learn_wordpiece
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS

HARD_PAGE = (
    "Ångström café naïve Straße ﬁancée ĳ Ǆ ŉ",
    "Cafe\u0301 e\u0323\u0302 e\u0302\u0323 o\u0308\u0304 n\u0303o",
    "漢字かな交じり文 한국어 \u1112\u1161\u11ab 中文abc中 \u2e80 \U00020000x \U0002ceb0x \uf900",
    "👩‍👩‍👧‍👦 👍🏽 🇬🇧 ☺️ ❤️‍🔥 a👍b #️⃣",
    "nul\x00bell\x07esc\x1b[0m del\x7f c1\x85\x9f fs\x1cgs\x1d vt\x0b ff\x0c tab\tcr\rlf\n",
    "zero\u200bwidth\u200cnon\u200djoiner\ufeff soft\u00adhyphen \u2060word\u180evowel",
    "ｆｕｌｌ ＷＩＤＴＨ　１２３ ［ＭＡＳＫ］ ！？",
    "Türkçe İstanbul ISPARTA ığdır I\u0307 i\u0307 ı",
    "ΟΔΥΣΣΕΥΣ Σ. ΑΣ\u0301Σ ΣΑΣ Ὀδυσσεύς ᾼ ῼ \u0345",
    "lone \ud800 sur\udc00rog\ud83dates \udfff pair\ud83d\ude00 \ud83d[MASK]\ude00",
    "blank\u00a0s \u2002\u2003\u2009\u202f\u3000 \u2028line\u2029para \u1680ogham \u205f",
    "x" * 100 + " " + "x" * 101 + " " + "é" * 100 + " " + "e\u0301" * 101 + " " + "中" * 300,
    "don't (stop) $5.00 ^_^ `a` ~b~ <c> | «d» „e“ f—g … ¿h? §¶ ⸘ ٪ ।",
    "[MASK] [SEP]x[CLS][PAD]y[UNK] [mask] [ MASK ] [[MASK]] [MASK [MA[SEP]SK]",
    "[MA\u200bSK] [S\u00adEP] [CL\x00S] [MAS\u212a] [MA\u0301SK] x[MA\u200bSK] [MA\x0cSK]",
    "العربية مُشَكَّل עִבְרִית हिन्दी ไทย தமிழ் Việt Nam",
    "\u212a \u2126 \u212b \u1fef \u037e \u0958 \ufb1d \u2000 \u0340 \u0f73 \u1e9e",
    "\ufffd \uffff \U0010ffff \ue000 \U000e0001 \u0378 a\ufffdb",
    "",
    " \t\n ",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabularies")


@cache
def character_vocabulary(known: str) -> tuple[str, ...]:
    """Special tokens and every character that can stand in a word, first and later."""
    forms = {form for c in known for form in (c, c.lower(), unicodedata.normalize("NFC", c))}
    forms |= {unicodedata.normalize("NFD", form) for form in forms}
    characters = sorted({c for c in "".join(forms) if not unicodedata.category(c).startswith("C")})
    words = [c for c in characters if not c.isspace()]
    return (*SPECIALS, *words, *("##" + c for c in words))


def reference(vocabulary: Sequence[str], rules: BasicRules, folder: Path) -> BertTokenizer:
    path = folder / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in vocabulary), encoding="utf-8")
    return BertTokenizer(
        str(path),
        do_lower_case=rules.lowercase,
        strip_accents=rules.strip_accents,
        tokenize_chinese_chars=rules.space_cjk,
    )


def plain_pieces(theirs: BertTokenizer, text: str) -> list[str]:
    """The reference's pieces when it is kept from seeing special tokens in text.

    Its `tokenize` takes `split_special_tokens` but forgets to pass it on to `_tokenize`.
    """
    lowered = "".join(c.lower() for c in text) if theirs.do_lower_case else text
    pieces: list[str] = theirs._tokenize(lowered, split_special_tokens=True)
    assert not set(pieces) & set(SPECIALS) - {"[UNK]"}
    return pieces


def assert_equal_ids(
    ours: Tokenizer, theirs: BertTokenizer, texts: Sequence[str], *, specials_in_text: bool
) -> None:
    encoded = ours.encode(texts, specials_in_text=specials_in_text)
    for text, ids in zip(texts, encoded, strict=True):
        pieces = theirs.tokenize(text) if specials_in_text else plain_pieces(theirs, text)
        assert ids.tolist() == theirs.convert_tokens_to_ids(pieces), repr(text)


ALL_RULES = tuple(
    BasicRules(lowercase=lowercase, strip_accents=strip, space_cjk=cjk)
    for lowercase in (True, False)
    for strip, cjk in ((None, True), (True, False), (False, True))
)


@pytest.mark.parametrize("specials_in_text", [True, False])
@pytest.mark.parametrize("rules", ALL_RULES, ids=str)
def test_a_page_of_hard_unicode(rules: BasicRules, specials_in_text: bool, folder: Path) -> None:
    learned = learn_wordpiece(HARD_PAGE, size=1500, lowercase=rules.lowercase, min_frequency=1)
    extra = character_vocabulary("".join(HARD_PAGE))
    vocabulary = tuple(dict.fromkeys((*learned.vocabulary, *extra)))
    theirs = reference(vocabulary, rules, folder)
    texts = [*HARD_PAGE, " ".join(HARD_PAGE), "".join(HARD_PAGE)]
    ours = Tokenizer(vocabulary, rules)
    assert_equal_ids(ours, theirs, texts, specials_in_text=specials_in_text)


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_sample_of_all_code_points(lowercase: bool, folder: Path) -> None:
    """One in 61 of all code points, and all below 0x600, in contexts that change their meaning."""
    sample = [chr(code) for code in (*range(0x600), *range(0x600, 0x110000, 61))]
    rules = BasicRules(lowercase=lowercase)
    vocabulary = character_vocabulary("".join(c for c in sample if ord(c) < 0x30000) + "AbeΣ")
    theirs = reference(vocabulary, rules, folder)
    contexts = ("{}", "A{}b", "e{}\u0301", "Σ{}", "[MA{}SK]")
    texts = [
        " ".join(context.format(c) for c in sample[start : start + 100] for context in contexts)
        for start in range(0, len(sample), 100)
    ]
    assert_equal_ids(Tokenizer(vocabulary, rules), theirs, texts, specials_in_text=True)


WORDS = st.sampled_from([*SPECIALS, "[MA", "SK]", "\u0301", "Σ", "İ", "中", "\x1c", "\u200b", " "])
ANY_TEXT = st.lists(st.text(st.characters(codec=None), max_size=12) | WORDS).map("".join)


@pytest.mark.parametrize("rules", ALL_RULES, ids=str)
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(text=ANY_TEXT, specials_in_text=st.booleans())
def test_arbitrary_text(
    rules: BasicRules, text: str, specials_in_text: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    vocabulary = character_vocabulary(text + "[MASK]")
    folder = tmp_path_factory.getbasetemp()
    theirs = reference(vocabulary, rules, folder)
    ours = Tokenizer(vocabulary, rules)
    assert_equal_ids(ours, theirs, [text], specials_in_text=specials_in_text)


@cache
def real_lines(data_folder: Path, number: int) -> list[str]:
    patterns = ("text/novels/*.txt", "conll2003/*", "glue/*/*.tsv", "sms-spam/*", "trec/*")
    lines = [
        line
        for pattern in patterns
        for path in sorted(data_folder.glob(pattern))[:12]
        if path.is_file()
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    # every line beyond ASCII is worth more than another plain one
    beyond = [line for line in lines if not line.isascii()]
    beyond = beyond[:: max(1, len(beyond) // (number // 2))][: number // 2]
    wanted = number - len(beyond)
    return beyond + lines[:: len(lines) // wanted][:wanted]


@pytest.mark.parametrize("casing", ["uncased", "cased"])
def test_twenty_thousand_real_lines(data_folder: Path, casing: str) -> None:
    path = data_folder / "vocab" / f"bert-base-{casing}-vocab.txt"
    ours = Tokenizer.load(path)
    assert ours.lowercase is (casing == "uncased")
    theirs = BertTokenizer(str(path), do_lower_case=ours.lowercase)
    lines = real_lines(data_folder, 20_000)
    assert len(lines) == 20_000
    assert_equal_ids(ours, theirs, lines, specials_in_text=True)
    assert_equal_ids(ours, theirs, HARD_PAGE, specials_in_text=True)
    assert_equal_ids(ours, theirs, HARD_PAGE, specials_in_text=False)
