"""A guess of the encoding of bytes that are not UTF-8, by the letters of some languages.

Each language of `_LANGUAGES` is tried in each encoding that it is found in. A reading is plausible
when nearly all characters beyond ASCII are letters of the language, or signs of typography, in
places where such stand, and when letters that are frequent in the language are frequent. The guess
is certain when all plausible readings are the same text.
"""

from __future__ import annotations

import codecs
from collections import Counter
from dataclasses import dataclass

_TYPOGRAPHY = frozenset("€‚„…‹‘’“”•–—›™\xa0¡£§©«®°²³´·º»½¼¾¿×ª±№\u00ad")
_BETWEEN_LETTERS = frozenset("’–—…\u00ad\xa0·´")
_ASIAN_TYPOGRAPHY = frozenset("「」『』《》〈〉【】〔〕々〇ー・…—‘’“”·、。！？，：；（）％～　－")
_LEAST_LETTERS = 3
_UNEXPLAINED = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class _Language:
    name: str
    codecs: tuple[str, ...]
    letters: frozenset[str]
    frequent: frozenset[str] = frozenset()
    share: float = 0.0
    by_words: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """The codec, where it is certain; the language; and the codecs that are plausible.

    `latin` tells that few characters are beyond ASCII, so that those of UTF-8 among them count.
    """

    codec: str | None
    language: str
    plausible: tuple[str, ...]
    latin: bool


def _latin(name: str, letters: str, *codecs: str) -> _Language:
    return _Language(name=name, codecs=codecs, letters=frozenset(letters + letters.upper()))


def _script(
    name: str, block: tuple[str, str], frequent: str, share: float, *codecs: str
) -> _Language:
    first, last = block
    letters = frozenset(map(chr, range(ord(first), ord(last) + 1)))
    return _Language(
        name=name, codecs=codecs, letters=letters, frequent=frozenset(frequent), share=share
    )


def _asian(name: str, letters: str, frequent: str, share: float, *codecs: str) -> _Language:
    found: frozenset[str] = frozenset()
    for first, last in zip(letters[::2], letters[1::2], strict=True):
        found |= frozenset(map(chr, range(ord(first), ord(last) + 1)))
    return _Language(
        name=name,
        codecs=codecs,
        letters=found | _ASIAN_TYPOGRAPHY,
        frequent=frozenset(frequent),
        share=share,
        by_words=False,
    )


_WEST = ("cp1252", "iso8859-15")
_CENTRE = ("cp1250", "iso8859-2")
_BALTIC = ("cp1257", "iso8859-13")
_CYRILLIC = ("cp1251", "koi8-r", "koi8_u", "iso8859-5", "cp866", "mac-cyrillic")
# the commonest characters of running text
_SIMPLIFIED = (
    "的一是不了在有人我他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家"
    "学对可她里后小么心多天而能好都然没日于起还发成事只作当想看文无开手十用主行方又如前所本见"
    "经头面公同三已"
)
_TRADITIONAL = (
    "的一是不了在有人我他這中大來上國個到說們為子和你地出道也時年得就那要下以生會自著去之過家"
    "學對可她裡後小麼心多天而能好都然沒日於起還發成事只作當想看文無開手十用主行方又如前所本見"
    "經頭面公同三已"
)
_HANGUL = "이다는의에을가고하지한를도은로사기리나어서인그아시자해라과일보들정수적있"
_HIRAGANA = "".join(map(chr, range(0x3041, 0x3094)))
_LANGUAGES = (
    _latin("English", "éïö", *_WEST),
    _latin("French", "àâæçéèêëîïôœùûüÿ", *_WEST),
    _latin("German", "äöüßéà", *_WEST),
    _latin("Spanish", "áéíóúñü", *_WEST),
    _latin("Portuguese", "ãõáéíóúâêôçàü", *_WEST),
    _latin("Italian", "àèéìòùî", *_WEST),
    _latin("Dutch", "éèëïöü", *_WEST),
    _latin("Swedish or Finnish", "åäöéšž", *_WEST),
    _latin("Danish or Norwegian", "æøåéòóôè", *_WEST),
    _latin("Icelandic", "áðéíóúýþæö", *_WEST),
    _latin("Catalan", "àçéèíïóòúü", *_WEST),
    _latin("Polish", "ąćęłńóśźż", *_CENTRE),
    _latin("Czech", "áčďéěíňóřšťúůýž", *_CENTRE),
    _latin("Slovak", "áäčďéíĺľňóôŕšťúýž", *_CENTRE),
    _latin("Hungarian", "áéíóöőúüű", *_CENTRE),
    _latin("Romanian", "ăâîşţ", *_CENTRE),
    _latin("Croatian or Slovene", "čćđšž", *_CENTRE),
    _latin("Turkish", "çğıöşüâîİ", "cp1254", "iso8859-9"),
    _latin("Lithuanian", "ąčęėįšųūž", *_BALTIC),
    _latin("Latvian", "āčēģīķļņšūž", *_BALTIC),
    _latin("Estonian", "äõöüšž", *_BALTIC),
    _script("Cyrillic", ("Ѐ", "ґ"), "оеаинтсрвлі", 0.5, *_CYRILLIC),
    _script("Greek", ("΄", "ώ"), "αοιετσνηυρίάόέ", 0.55, "cp1253", "iso8859-7"),
    _script("Hebrew", ("\u05b0", "״"), "יוהלאתרבמשנ", 0.6, "cp1255", "iso8859-8"),
    _script("Arabic", ("،", "ْ"), "اليمونرتبةهع", 0.55, "cp1256", "iso8859-6"),
    _script("Thai", ("ก", "๛"), "นารกอเงมยลวดทสต่้ิี", 0.55, "cp874"),
    _asian("Chinese", "一鿿", _SIMPLIFIED, 0.2, "gb18030"),
    _asian("Chinese", "一鿿", _TRADITIONAL, 0.2, "cp950"),
    _asian("Japanese", "ぁんァヶ一鿿", _HIRAGANA, 0.3, "cp932", "euc_jp"),
    _asian("Korean", "가힣", _HANGUL, 0.3, "cp949"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Reading:
    codec: str
    language: _Language
    text: str
    unexplained: int


def guess_codec(sample: bytes) -> Guess:
    """Return the codec of some lines that are not UTF-8, or what it may be."""
    found = []
    decoded = {codec: _decoded(sample, codec) for each in _LANGUAGES for codec in each.codecs}
    for language in _LANGUAGES:
        for codec in language.codecs:
            text, counts = decoded[codec]
            unexplained = _unexplained(text, counts, language) if counts else None
            if unexplained is not None:
                found.append(_Reading(codec, language, text, unexplained))
    found.sort(key=lambda reading: reading.unexplained)
    plausible = tuple(dict.fromkeys(reading.codec for reading in found))
    if not found:
        return Guess(codec=None, language="", plausible=(), latin=True)
    best = found[0]
    margin = 1 if best.unexplained == 0 else 3
    rivals = [
        each
        for each in found
        if each.text != best.text and each.unexplained < best.unexplained + margin
    ]
    return Guess(
        codec=None if rivals else best.codec,
        language=best.language.name,
        plausible=plausible,
        latin=best.language.by_words and not best.language.frequent,
    )


def _decoded(sample: bytes, codec: str) -> tuple[str, Counter[str]]:
    """The text, and how often each character beyond ASCII is in it; none if it is not decoded."""
    try:
        # not final: the sample may end in the middle of a character
        text = codecs.getincrementaldecoder(codec)().decode(sample)
    except UnicodeDecodeError:
        return "", Counter()
    counts = Counter(text)
    return text, Counter({sign: count for sign, count in counts.items() if sign > "\x7f"})


def _unexplained(text: str, counts: Counter[str], language: _Language) -> int | None:
    """Count the characters that do not belong in a language; None if it is not plausible."""
    beyond = counts.total()
    known = language.letters | _TYPOGRAPHY
    strange = sum(count for sign, count in counts.items() if sign not in known)
    most = _UNEXPLAINED * beyond
    if language.frequent:
        letters = sum(count for sign, count in counts.items() if sign in language.letters)
        frequent = sum(counts[sign] for sign in language.frequent)
        if letters < 5 or frequent < language.share * letters:
            return None
    elif beyond < _LEAST_LETTERS:
        return None
    if strange <= most and language.by_words:
        strange += sum(_misplaced(word, language) for word in text.split() if not word.isascii())
    return strange if strange <= most else None


def _misplaced(word: str, language: _Language) -> int:
    """Count characters beyond ASCII where they do not stand in the words of a language."""
    count = 0
    # of a script of its own no word has Latin letters between its own
    latin = not language.frequent
    for before, letter, after in zip(f" {word}"[:-1], word, f"{word} "[1:], strict=True):
        if letter <= "\x7f":
            continue
        if letter in language.letters:
            wrong_case = letter.isupper() and before.islower()
            neighbour = before if before.isascii() else after
            mixed = not latin and neighbour.isascii() and neighbour.isalpha()
            count += wrong_case or mixed or before.isdecimal() or after.isdecimal()
        elif letter not in _BETWEEN_LETTERS:
            count += before.isalpha() and after.isalpha()
    return count
