"""Token ids equal those of transformers' slow BertTokenizer, on any string."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizer

from bertsmith.text.corpus.sentences import split_sentences
from bertsmith.text.white_space import tidy
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bulk.documents import DocumentEncoder
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
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


@cache
def by_category() -> dict[str, list[str]]:
    """Characters by their category, looked up once for all lines.

    Left out are planes that hold nothing but ideographs and what is private or not assigned.
    """
    found: dict[str, list[str]] = {}
    for item in map(chr, chain(range(0x20000), range(0xE0000, 0xE1000))):
        found.setdefault(unicodedata.category(item), []).append(item)
    return found


def kinds(*prefixes: str) -> str:
    """All characters of some categories, in words with letters around them."""
    wanted = (every for kind, every in by_category().items() if kind.startswith(prefixes))
    return " ".join(f"a{c}B" for c in sorted(chain.from_iterable(wanted)))


IDEOGRAPH_RANGES = (
    *(0x33FF, 0x3400, 0x4DBF, 0x4DC0, 0x4DFF, 0x4E00, 0x9FFF, 0xA000, 0xF8FF, 0xF900, 0xFAFF),
    *(0xFB00, 0x1FFFF, 0x20000, 0x2A6DF, 0x2A6E0, 0x2A700, 0x2B73F, 0x2B740, 0x2B81F, 0x2B820),
    *(0x2CEAF, 0x2CEB0, 0x2EBEF, 0x2EBF0, 0x2F7FF, 0x2F800, 0x2FA1F, 0x2FA20, 0x30000, 0x3134A),
)
HOSTILE_LINES = (
    *HARD_PAGE,
    *(unicodedata.normalize(form, line) for line in HARD_PAGE for form in ("NFC", "NFD", "NFKD")),
    "\ufeffa byte-order mark \ufeff in\ufeffside, \ufffe \uffff\ufeff",
    "\x00".join("nulls") + " \x00 \x00\x00 x\x00",
    "".join(f"a{chr(code)}b {chr(code)} " for code in (*range(0x20), *range(0x7F, 0xA0))),
    "\ufffd\ufffd \ufffdx x\ufffdy \ufffd.",
    "e" + "\u0301" * 1500 + " " + "o\u0323" + "\u0302\u0301" * 700 + " \u0301" * 3,
    "latin-1 read badly: caf\udce9 \udc80\udcff na\udcefve \ud800\udc00 \udbff\udfff",
    "".join(f"a{c}b" for c in map(chr, range(0x110000)) if c.isspace()),
    "".join(f"x{chr(code)}y {chr(code)}" for code in IDEOGRAPH_RANGES),
    "İIıi İSTANBUL ISPARTALI i\u0307 I\u0307 ẞ ß STRASSE Straße SS ŉ ǰ ΐ ﬃ",
    "\u200eleft\u200fright\u202aem\u202bbed\u202cded \u2066iso\u2069lated",
    "\u061cשלום\u05be עולם, سلام \u200fשָׁלוֹם",
    "👩‍❤️‍💋‍👨 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🏳️‍🌈 1️⃣ 👍🏿👍🏿 🇩🇪🇹🇷 ☺︎ ♀ x👩‍🔧y",
    *("w" * size for size in (99, 100, 101, 5000)),
    "ß" * 100 + " " + "é" * 101 + " " + "e\u0301" * 60 + " " + "-" * 150 + " " + "Dž" * 99,
    "".join(SPECIALS) + " " + " ".join(SPECIALS).lower() + " [UNK][UNK]. ([MASK]) [SEP]\u0301",
    '<\u0338 >\u0338 =\u0338 ≠ `\u0300 ;\u0301 a\u0338. .\u0301 "\u0308Quoted\u0308"',
    kinds("P"),
    kinds("Sc", "Sk", "Sm"),
    kinds("Z", "Cc", "Cf"),
    kinds("Mc", "Me", "Nl", "No"),
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


class Ids(dict[str, int]):
    """The reference's id of each piece, asked once, as that is slow."""

    def __init__(self, theirs: BertTokenizer) -> None:
        super().__init__()
        self._theirs = theirs

    def __missing__(self, piece: str) -> int:
        self[piece] = found = int(self._theirs.convert_tokens_to_ids(piece))
        return found


def assert_equal_ids(
    ours: Tokenizer, theirs: BertTokenizer, texts: Sequence[str], *, specials_in_text: bool
) -> None:
    encoded = ours.encode(texts, specials_in_text=specials_in_text)
    id_of = Ids(theirs)
    for text, ids in zip(texts, encoded, strict=True):
        pieces = theirs.tokenize(text) if specials_in_text else plain_pieces(theirs, text)
        assert ids.tolist() == [id_of[piece] for piece in pieces], repr(text)


def assert_equal_documents(ours: Tokenizer, theirs: BertTokenizer, texts: Sequence[str]) -> None:
    """The whole way of `bertsmith prepare`: text, tidy paragraphs, sentences, ids."""
    paragraphs = [paragraph for paragraph in map(tidy, texts) if paragraph]
    encoder = DocumentEncoder(ours)
    # a line by itself, then all at once when nothing is new
    together = encoder.encode([text.encode() for text in paragraphs])
    every: list[int] = []
    id_of = Ids(theirs)
    for text in paragraphs:
        split = [plain_pieces(theirs, sentence) for sentence in split_sentences(text)]
        expected = [[id_of[piece] for piece in pieces] for pieces in split if pieces]
        encoded = encoder.encode([text.encode()])
        assert encoded.sentences.tolist() == list(map(len, expected)), repr(text)
        assert encoded.ids.tolist() == list(chain.from_iterable(expected)), repr(text)
        every += encoded.ids.tolist()
    assert together.ids.tolist() == every


ALL_RULES = tuple(
    BasicRules(lowercase=lowercase, strip_accents=strip, space_cjk=cjk)
    for lowercase in (True, False)
    for strip, cjk in ((None, True), (True, False), (False, True))
)


@pytest.mark.parametrize("specials_in_text", [True, False])
@pytest.mark.parametrize("rules", ALL_RULES, ids=str)
def test_hostile_lines(rules: BasicRules, specials_in_text: bool, folder: Path) -> None:
    learned = learn_wordpiece(HARD_PAGE, size=1500, lowercase=rules.lowercase, min_frequency=1)
    known = "".join(c for c in "".join(HOSTILE_LINES) if not "\ud800" <= c <= "\udfff")
    extra = character_vocabulary(known)
    vocabulary = tuple(dict.fromkeys((*learned.vocabulary, *extra)))
    theirs = reference(vocabulary, rules, folder)
    texts = [*HOSTILE_LINES, " ".join(HARD_PAGE), "".join(HARD_PAGE)]
    ours = Tokenizer(vocabulary, rules)
    assert_equal_ids(ours, theirs, texts, specials_in_text=specials_in_text)
    if not specials_in_text:
        assert_equal_documents(ours, theirs, texts)


@pytest.mark.parametrize("step", [997, pytest.param(61, marks=pytest.mark.faults)])
@pytest.mark.parametrize("lowercase", [True, False])
def test_a_sample_of_all_code_points(lowercase: bool, step: int, folder: Path) -> None:
    """One in 61 of all code points, and all below 0x600, in contexts that change their meaning.

    Of the planes in which hardly any is assigned, one in `step`.
    """
    codes = (*range(0x600), *range(0x600, 0x30000, 61), *range(0x30000, 0x110000, step))
    sample = [chr(code) for code in codes]
    rules = BasicRules(lowercase=lowercase)
    vocabulary = character_vocabulary("".join(c for c in sample if ord(c) < 0x30000) + "AbeΣ")
    theirs = reference(vocabulary, rules, folder)
    contexts = ("{}", "A{}b", "e{}\u0301", "Σ{}", "[MA{}SK]")
    texts = [
        " ".join(context.format(c) for c in sample[start : start + 100] for context in contexts)
        for start in range(0, len(sample), 100)
    ]
    assert_equal_ids(Tokenizer(vocabulary, rules), theirs, texts, specials_in_text=True)
    assert_equal_documents(Tokenizer(vocabulary, rules), theirs, texts)


WORDS = st.sampled_from([*SPECIALS, "[MA", "SK]", "\u0301", "Σ", "İ", "中", "\x1c", "\u200b", " "])
ANY_TEXT = st.lists(st.text(st.characters(codec=None), max_size=12) | WORDS).map("".join)


@pytest.mark.parametrize("examples", [75, pytest.param(1000, marks=pytest.mark.faults)])
@pytest.mark.parametrize("rules", ALL_RULES, ids=str)
def test_arbitrary_text(rules: BasicRules, examples: int, folder: Path) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @given(text=ANY_TEXT, specials_in_text=st.booleans())
    def equal(text: str, specials_in_text: bool) -> None:
        assert_equal_text(rules, text, specials_in_text, folder)

    equal()


def assert_equal_text(rules: BasicRules, text: str, specials_in_text: bool, folder: Path) -> None:
    """A text in a vocabulary of its characters."""
    vocabulary = character_vocabulary(text + "[MASK]")
    theirs = reference(vocabulary, rules, folder)
    ours = Tokenizer(vocabulary, rules)
    assert_equal_ids(ours, theirs, [text], specials_in_text=specials_in_text)
    assert_equal_documents(ours, theirs, [text])


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


@pytest.mark.parametrize("number", [300, pytest.param(20_000, marks=pytest.mark.faults)])
@pytest.mark.parametrize("casing", ["uncased", "cased"])
def test_ids_of_real_lines(data_folder: Path, casing: str, number: int) -> None:
    path = data_folder / "vocab" / f"bert-base-{casing}-vocab.txt"
    ours = Tokenizer.load(path)
    assert ours.lowercase is (casing == "uncased")
    theirs = BertTokenizer(str(path), do_lower_case=ours.lowercase)
    lines = real_lines(data_folder, number)
    assert len(lines) == number
    assert_equal_ids(ours, theirs, lines, specials_in_text=True)
    assert_equal_documents(ours, theirs, lines)
    assert_equal_ids(ours, theirs, HOSTILE_LINES, specials_in_text=True)
    assert_equal_ids(ours, theirs, HOSTILE_LINES, specials_in_text=False)
    assert_equal_documents(ours, theirs, HOSTILE_LINES)
