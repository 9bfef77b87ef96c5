"""Vocabularies of scripts other than English's: accents that are kept, alphabets that cover."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer, BertTokenizer

from bertsmith.core.errors import VocabularyError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bpe import BLANK
from bertsmith.tokens.bulk.documents import DocumentEncoder
from bertsmith.tokens.learning import counting
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.counting import (
    AccentDecision,
    Alphabet,
    LearningObserver,
    WordCounter,
    decide_accents,
    measure_fit,
)
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.normalisation import SPACE
from bertsmith.tokens.tokenizer import Tokenizer
from tokens.counted import count_words

TEXTS = {
    "Hindi": "नदी के किनारे एक छोटा गाँव है। वहाँ की हवा मीठी है।",
    "Bengali": "নদীর ধারে একটি ছোট গ্রাম। সেখানে হাওয়া মিষ্টি।",
    "Tamil": "ஆற்றின் கரையில் ஒரு சிறிய கிராமம் உள்ளது.",
    "Arabic": "على ضفّة النهر قريةٌ صغيرة، وهواؤها عذبٌ أبدًا.",
    "Hebrew": "עַל גְּדַת הַנָּהָר כְּפָר קָטָן.",
    "Thai": "ริมแม่น้ำมีหมู่บ้านเล็ก อากาศที่นั่นดี",
    "Khmer": "នៅមាត់ទន្លេមានភូមិតូចមួយ។",
    "Burmese": "မြစ်ကမ်းတွင် ရွာငယ်တစ်ရွာရှိသည်။",
    "Japanese": "川のほとりに小さな村があり、風がいつも穏やかだ。ガス、パン。",
    "Korean": "강가에 작은 마을이 있고 바람은 늘 부드럽다.",
    "Vietnamese": "Bên bờ sông có một ngôi làng nhỏ, gió luôn dịu dàng.",
    "Finnish": "Joen törmällä on pieni kylä, jossa tuuli käy lempeänä yöllä.",
    "Russian": "На берегу реки стоит маленький посёлок, тихий и зелёный. Ещё один мой.",
}
ENGLISH = "By the river lies a small village, and its only café is a quiet place. " * 9


class Notes(LearningObserver):
    def __init__(self) -> None:
        self.accents: AccentDecision | None = None
        self.alphabet: Alphabet | None = None

    def decided(self, accents: AccentDecision) -> None:
        self.accents = accents

    def covered(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet


@pytest.mark.parametrize("script", TEXTS)
def test_letters_that_stripping_would_change_are_kept(script: str, tmp_path: Path) -> None:
    text = TEXTS[script]
    made = learn_wordpiece([text] * 5, size=300)
    assert made.rules == BasicRules(lowercase=True, strip_accents=False)
    made.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == made.fingerprint
    theirs = BertTokenizer.from_pretrained(tmp_path)
    assert (theirs.do_lower_case, theirs.basic_tokenizer.strip_accents) == (True, False)
    # no word has lost anything, and every one is known
    words = theirs.basic_tokenizer.tokenize(text.lower())
    assert "".join(words) == "".join(text.lower().split())
    expected = theirs(text, add_special_tokens=False)["input_ids"]
    assert made.encode([text])[0].tolist() == expected
    assert made.unknown_id not in expected
    assert DocumentEncoder(made).encode([text.encode()]).ids.tolist() == expected
    assert made.decode(expected).replace(" ", "") == text.lower().replace(" ", "")


@pytest.mark.parametrize("script", ["Hindi", "Korean", "Japanese", "Vietnamese"])
def test_unigram_keeps_them_too(script: str, tmp_path: Path) -> None:
    text = TEXTS[script]
    made = learn_unigram([text] * 5, size=120)
    made.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    expected = theirs(text, add_special_tokens=False)["input_ids"]
    assert made.encode([text])[0].tolist() == expected
    assert theirs.decode(expected) == text.lower()


@pytest.mark.parametrize("learn", [learn_byte_bpe, learn_unigram])
@pytest.mark.parametrize("script", ["Hindi", "Tamil", "Burmese", "Hebrew"])
def test_a_piece_that_begins_with_a_mark_goes_on(
    script: str, learn: Callable[..., Tokenizer]
) -> None:
    """What is masked or shown as a word has its vowels; pieces of bytes are cut before them."""
    made = learn([TEXTS[script]] * 5, size=320 if learn is learn_byte_bpe else 80)
    inside = [n for n in made.ordinary_ids.tolist() if made.vocabulary[n][0] not in (SPACE, BLANK)]
    begins = {n: made.decode([n])[:1] for n in inside}
    marks = [n for n in inside if begins[n] and unicodedata.category(begins[n])[0] == "M"]
    assert marks
    assert made.continues[marks].all()
    stops = [n for n in inside if begins[n] and begins[n] in "।."]
    assert not made.continues[stops].any()


@pytest.mark.parametrize("strip", [True, False])
@pytest.mark.parametrize("script", TEXTS)
def test_an_option_goes_before(script: str, strip: bool, tmp_path: Path) -> None:
    made = learn_wordpiece([TEXTS[script]] * 5, size=300, strip_accents=strip)
    assert made.rules == BasicRules(lowercase=True, strip_accents=strip)
    made.save(tmp_path)
    theirs = BertTokenizer.from_pretrained(tmp_path)
    expected = theirs(TEXTS[script], add_special_tokens=False)["input_ids"]
    assert made.encode([TEXTS[script]])[0].tolist() == expected


def test_english_is_stripped_and_cased_text_is_not() -> None:
    notes = Notes()
    made = learn_wordpiece([ENGLISH * 3], size=200, observer=notes)
    assert made.rules == BasicRules(lowercase=True, strip_accents=False)  # café, in every sentence
    rare = ENGLISH + ENGLISH.replace("café", "inn") * 9
    made = learn_wordpiece([rare], size=200, observer=notes)
    assert made.rules == BasicRules(lowercase=True, strip_accents=True)
    assert notes.accents is not None
    letters = sum(map(str.isalpha, rare))
    assert notes.accents.changed == pytest.approx(9 / letters)
    assert notes.accents.scripts == ("Latin",)
    cased = learn_wordpiece([rare], size=200, lowercase=False)
    assert cased.rules == BasicRules(lowercase=False, strip_accents=False)


@pytest.mark.parametrize("script", ["Korean", "Vietnamese", "Japanese", "Hindi"])
def test_decomposed_text_gives_the_vocabulary_of_composed_text(script: str, tmp_path: Path) -> None:
    """Macs and PDFs decompose; a syllable of Korean in its letters has no accents to keep."""
    composed, decomposed = (unicodedata.normalize(form, TEXTS[script]) for form in ("NFC", "NFD"))
    made, same = (learn_wordpiece([text] * 5, size=300) for text in (composed, decomposed))
    assert made.fingerprint == same.fingerprint
    same.save(tmp_path)
    theirs = BertTokenizer.from_pretrained(tmp_path)
    expected = theirs(decomposed, add_special_tokens=False)["input_ids"]
    assert same.encode([decomposed, composed])[0].tolist() == expected
    assert same.unknown_id not in expected


def test_words_too_long_for_wordpiece_are_warned_of() -> None:
    notes = Notes()
    learn_wordpiece(["ก" * 101 + " ข" * 99 + " ค" * 202], size=100, observer=notes)
    assert notes.alphabet is not None
    assert notes.alphabet.too_long == pytest.approx(101 / 402)
    assert "25.12 % of the characters are in words of more than 100" in notes.alphabet.warning(
        "[UNK]"
    )
    learn_wordpiece(["ก" * 100 + " ข" * 99], size=100, observer=notes)
    assert not notes.alphabet.warning("[UNK]")


def test_characters_that_bert_drops_are_warned_of() -> None:
    notes = Notes()
    learn_wordpiece(["\ue000\ue001\U0010fffd son " * 9 + "\u0378"], size=100, observer=notes)
    assert notes.alphabet is not None
    assert notes.alphabet.dropped == pytest.approx(28 / 55)
    assert "50.91 % of the characters are for private use" in notes.alphabet.warning("[UNK]")
    learn_wordpiece(["a soft\u00adhyphen " * 9], size=100, observer=notes)
    assert not notes.alphabet.warning("[UNK]")
    with pytest.raises(VocabularyError, match=r"WordPiece drops them; --kind unigram and --kind"):
        learn_wordpiece(["\ue000 \ue001"], size=100)


def test_lower_casing_turkish_is_warned_of() -> None:
    text = "Işık İzmir'de ağır ağır kayboldu, yıldızlar çıktı."
    decided = decide_accents(Counter(text), lowercase=True)
    assert decided.dotless == pytest.approx(8 / sum(map(str.isalpha, text)))
    assert "--cased keeps them apart" in decided.warning()
    assert not decide_accents(Counter(text), lowercase=False).warning()
    assert not decide_accents(Counter(ENGLISH * 9 + "Işık"), lowercase=True).warning()


def test_a_little_of_another_script_is_enough_to_keep_it() -> None:
    decided = decide_accents(Counter("a" * 5000 + TEXTS["Hindi"]), lowercase=True)
    assert not decided.strip
    assert decided.scripts == ("Devanagari",)
    marked = decide_accents(Counter("owo\u0323\u0301" * 9), lowercase=True)
    assert "of the letters (combining marks)" in marked.describe()
    emoji = decide_accents(Counter("a" * 500 + "❤\ufe0f" * 9), lowercase=True)
    assert emoji.strip


@pytest.mark.parametrize("learn", [learn_wordpiece, learn_unigram])
def test_an_alphabet_of_thousands_is_covered(learn: Callable[..., Tokenizer]) -> None:
    """3,000 ideographs, the n-th of them 9,000 / n times, at most 199."""
    ideographs = [chr(0x4E00 + number) for number in range(3000)]
    texts = [
        "".join(c for number, c in enumerate(ideographs, 1) if 9000 // number >= time)
        for time in range(1, 200)
    ]
    counts = Counter("".join(texts))
    total = counts.total()
    notes = Notes()
    made = learn(texts, size=3500, character_coverage=0.99, observer=notes)
    assert notes.alphabet is not None
    known = [c for c in ideographs if c in made.vocabulary]
    covered = sum(counts[c] for c in known) / total
    # no more than are needed, and the most frequent
    assert 0.99 <= covered < 0.99 + 2 * counts[known[-1]] / total
    assert known == ideographs[: len(known)]
    assert notes.alphabet.left_out == 3000 - len(known)
    fit = measure_fit(made, texts)
    if learn is learn_wordpiece:
        assert fit.unknown / total == pytest.approx(1 - covered)
    assert 0 < fit.unknown_share < 0.02


def test_an_alphabet_that_does_not_fit() -> None:
    texts = ["".join(chr(0x4E00 + number) for number in range(300))] * 3
    with pytest.raises(VocabularyError, match=r"200 pieces cannot hold.*305; .*610.*coverage"):
        learn_wordpiece(texts, size=200)
    for coverage in (0.0, 1.1):
        with pytest.raises(VocabularyError, match="coverage of"):
            learn_wordpiece(texts, size=400, character_coverage=coverage)


def test_ideographs_are_decoded_without_blanks() -> None:
    text = "川のほとりに小さな村があり、風が「いつも」穏やかだ。bert も 2 語。"
    made = learn_wordpiece([text] * 5, size=200)
    (ids,) = made.encode([text])
    assert (
        made.decode(ids.tolist())
        == "川のほとりに小さな村があり、風が「いつも」穏やかだ。 bert も 2 語。"
    )


def test_words_and_characters_of_text_without_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "春天的港口a1很安静，船\U0002ceafx也\u0301安静。"
    rules = BasicRules(lowercase=True, strip_accents=False)
    assert count_words([text, "a b"], rules) == Counter([*rules.words(text), "a", "b"])
    monkeypatch.setattr(counting, "_MAX_CHUNKS", 5)
    counter = WordCounter()
    texts = [f"ab{number} cd{number}" for number in range(50)]
    for item in texts:
        counter.add(item)
    assert len(counter.stretches) <= 5
    assert counter.characters() == Counter("".join(texts).replace(" ", ""))
