"""Detection of text encodings: byte order marks, zero bytes, declarations, and a guess by letters.

The guess decodes bytes that are not UTF-8 in each encoding in use for each of `_languages`. A
decoding is plausible if nearly all characters beyond ASCII are letters of the language or
typographic signs, in plausible positions, and if the language's frequent letters are frequent. The
guess is certain if all plausible decodings are the same text.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bertsmith.core.errors import ConfigError
from bertsmith.core.log import say
from bertsmith.core.printable import counted
from bertsmith.text.config import UTF8, codec_named

_TYPOGRAPHY = frozenset("€‚„…‹‘’“”•–—›™\xa0¡£§©«®°²³´·º»½¼¾¿×ª±№\u00ad")
_BETWEEN_LETTERS = frozenset("’–—…\u00ad\xa0·´")
# letters of which some texts have many and most have none: Hebrew points, Arabic vowel signs and
# the line that lengthens a word, half-width katakana
_OCCASIONAL = frozenset(
    map(chr, (*range(0x5B0, 0x5C8), 0x640, *range(0x64B, 0x653), *range(0xFF61, 0xFFA0)))
)
_ASIAN_TYPOGRAPHY = frozenset("「」『』《》〈〉【】〔〕々〇ー・…—‘’“”·、。！？，：；（）％～　－")
_MIN_LETTERS = 3
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
    """The codec, if it is certain; the language; and the plausible codecs.

    `latin` means that few characters are beyond ASCII, so that valid UTF-8 among them counts.
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
    characters: frozenset[str] = frozenset()
    for first, last in zip(letters[::2], letters[1::2], strict=True):
        characters |= frozenset(map(chr, range(ord(first), ord(last) + 1)))
    return _Language(
        name=name,
        codecs=codecs,
        letters=characters | _ASIAN_TYPOGRAPHY,
        frequent=frozenset(frequent),
        share=share,
        by_words=False,
    )


_WEST = ("cp1252", "iso8859-15")
_CENTRE = ("cp1250", "iso8859-2")
_BALTIC = ("cp1257", "iso8859-13")
_CYRILLIC = ("cp1251", "koi8-r", "koi8_u", "iso8859-5", "cp866", "mac-cyrillic")
# the most frequent characters of running text
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


@cache
def _languages() -> tuple[_Language, ...]:
    """Return the languages that are guessed, made for the first guess: most files are UTF-8."""
    return (
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
        _asian("Japanese", "ぁんァヶ一鿿｡ﾟ", _HIRAGANA, 0.3, "cp932", "euc_jp"),
        _asian("Korean", "가힣", _HANGUL, 0.3, "cp949"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Reading:
    codec: str
    language: _Language
    text: str
    unexplained: int


def guess_codec(sample: bytes) -> Guess:
    """Return the codec of lines that are not UTF-8, or the plausible ones."""
    readings, languages = [], _languages()
    decoded = {codec: _decoded(sample, codec) for item in languages for codec in item.codecs}
    for language in languages:
        for codec in language.codecs:
            text, counts = decoded[codec]
            unexplained = _unexplained(text, counts, language) if counts else None
            if unexplained is not None:
                readings.append(_Reading(codec, language, text, unexplained))
    readings.sort(key=lambda reading: reading.unexplained)
    plausible = tuple(dict.fromkeys(reading.codec for reading in readings))
    if not readings:
        return Guess(codec=None, language="", plausible=(), latin=True)
    best = readings[0]
    margin = 1 if best.unexplained == 0 else 3
    indistinct = [
        other
        for other in readings
        if other.text != best.text and other.unexplained < best.unexplained + margin
    ]
    return Guess(
        codec=None if indistinct else best.codec,
        language=best.language.name,
        plausible=plausible,
        latin=best.language.by_words and not best.language.frequent,
    )


def _decoded(sample: bytes, codec: str) -> tuple[str, Counter[str]]:
    """Return the text and its counts of characters beyond ASCII, both empty if decoding fails."""
    try:
        # not final: the sample may end in the middle of a character
        text = codecs.getincrementaldecoder(codec)().decode(sample)
    except UnicodeDecodeError:
        return "", Counter()
    counts = Counter(text)
    return text, Counter({sign: count for sign, count in counts.items() if sign > "\x7f"})


def _unexplained(text: str, counts: Counter[str], language: _Language) -> int | None:
    """Count the characters foreign to a language; None if it is not plausible."""
    beyond = counts.total()
    known = language.letters | _TYPOGRAPHY
    strange = sum(count for sign, count in counts.items() if sign not in known)
    max_strange = _UNEXPLAINED * beyond
    if language.frequent:
        counted = language.letters - _OCCASIONAL
        letters = sum(count for sign, count in counts.items() if sign in counted)
        frequent = sum(counts[sign] for sign in language.frequent)
        if letters < 5 or frequent < language.share * letters:
            return None
    elif beyond < _MIN_LETTERS:
        return None
    if strange <= max_strange and language.by_words:
        strange += sum(_misplaced(word, language) for word in text.split() if not word.isascii())
    return strange if strange <= max_strange else None


def _misplaced(word: str, language: _Language) -> int:
    """Count characters beyond ASCII in implausible positions for a language."""
    count = 0
    # words of a non-Latin script do not mix it with Latin letters
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


OPTION = "--encoding"
EXAMINED_BYTES = 1 << 26
"""Bytes of a file examined for its encoding; later bytes that do not fit it are an error."""

_SAMPLE_BYTES = 1 << 14
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(
    rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})"""
    rb"""|<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""",
    re.IGNORECASE,
)
# the codecs that browsers use for these declarations, as pages mean them
_BROWSER_CODECS = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874",
    "tis-620": "cp874", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932",
    "euc_kr": "cp949", "big5": "cp950",
}  # fmt: skip
# encodings of seven bits, which pass for ASCII but for the marks that switch between alphabets
_SWITCHING = {
    "iso2022_jp": re.compile(rb"\x1b\$[@B]"),
    "iso2022_jp_ext": re.compile(rb"\x1b(?:\$[@B]|\$\(D|\(I)"),
    "iso2022_kr": re.compile(rb"\x1b\$\)C"),
}
_MARK_BYTES = 4
# codecs of Python that are not encodings of files
_WIDE = ("utf-16", "utf-32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The detected codec of a file's text, or None.

    `guessed` is the reason for a guess, `doubt` one against a codec that was named, `fault` the
    error if there is no codec, and `candidates` are other codecs that the text may be in.
    """

    codec: str | None
    guessed: str = ""
    doubt: str = ""
    fault: str = ""
    candidates: tuple[str, ...] = ()


@cache
def is_wide(codec: str) -> bool:
    """Return whether characters have at least two bytes, some of them zero."""
    return codec.startswith(_WIDE)


def resolve(codec: str, head: bytes) -> str:
    """Return the codec with its byte order, from the mark in `head` or else little-endian."""
    return codec if codec not in _WIDE else _marked(head) or f"{codec}-le"


def _marked(head: bytes) -> str | None:
    """Return the codec that a byte order mark stands for; None without one."""
    return next((codec for mark, codec in _MARKS if head.startswith(mark)), None)


def larger_codec(codec: str) -> str | None:
    """Return the codec with more characters that is often meant by the name of this one."""
    return _BROWSER_CODECS.get(codec)


def judge(blocks: Iterable[bytes]) -> Verdict:
    """Detect the encoding of a text from its first blocks of bytes."""
    decoder = codecs.getincrementaldecoder(UTF8)()
    sample = _Sample()
    multibyte = examined = 0
    declared = switching = None
    tail = b""
    for block in blocks:
        if not examined and (marked := _marked(block)):
            return Verdict(codec=marked)
        if not examined and (wide := _by_zeros(block)):
            return wide
        declared = _declared(block) if not examined else declared
        examined += len(block)
        switching = switching or _by_switches(tail + block)
        tail = block[-_MARK_BYTES:]
        if not sample.begun:
            try:
                multibyte += len(block) - len(decoder.decode(block))
            except UnicodeDecodeError:
                sample.begun = True
        sample.add(block)
        if sample.size >= _SAMPLE_BYTES or examined >= EXAMINED_BYTES:
            break
    # a file truncated within its last character counts as UTF-8
    if not sample.begun:
        return switching if switching and not multibyte else Verdict(codec=UTF8)
    return _by_sample(sample.whole(), multibyte, declared)


def doubted(codec: str, block: bytes) -> Verdict | None:
    """Return the verdict on the first block of a text in a named encoding that reads as UTF-8."""
    if codec == UTF8 or is_wide(codec) or block.isascii() or not _decodes(block, UTF8):
        return None
    doubt = f"{OPTION} says so, for all files, but this is valid UTF-8; save the others as UTF-8"
    return Verdict(codec=codec, doubt=doubt)


class _Sample:
    """A sample of the first lines that are not ASCII, from the first block that is not UTF-8 on.

    Lines are complete, so that no multi-byte character is cut.
    """

    def __init__(self) -> None:
        self.begun = False
        self.size = 0
        self._lines: list[bytes] = []
        self._rest = b""

    def add(self, block: bytes) -> None:
        """Add the lines of the next block; before the sample begins, keep only the last line."""
        if not self.begun:
            self._rest = block[block.rfind(b"\n") + 1 :][:_SAMPLE_BYTES]
            return
        *lines, self._rest = (self._rest + block).splitlines(keepends=True) or [b""]
        for line in lines:
            if not line.isascii() and self.size < _SAMPLE_BYTES:
                self._lines.append(line[:_SAMPLE_BYTES])
                self.size += len(self._lines[-1])
        if len(self._rest) >= _SAMPLE_BYTES:
            self.size += len(self._rest)

    def whole(self) -> bytes:
        """Return the sample, including the unfinished last line."""
        rest = self._rest[:_SAMPLE_BYTES]
        # a long line may be cut within a character, and nothing may follow it
        cut = bool(self._lines) and not self._lines[-1].endswith((b"\n", b"\r"))
        return b"".join(self._lines) + (b"" if rest.isascii() or cut else rest)


def _by_zeros(head: bytes) -> Verdict | None:
    """Detect UTF-16 and UTF-32 without a mark by zero bytes; None if they are few, or none."""
    start = head[:4096]
    if start.count(0) * 5 <= len(start):
        return _by_few_zeros(start)
    for codec, size, last in (
        ("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1),
    ):  # fmt: skip
        units = len(start) // size
        zeros = [start[offset::size][:units].count(0) for offset in range(size)]
        others = [count for offset, count in enumerate(zeros) if offset != last]
        if units and not zeros[last] and min(others) > 0.8 * units and _decodes(start, codec):
            return Verdict(codec=codec, guessed="its zero bytes are those of ASCII characters")
    return Verdict(
        codec=None,
        fault="is not UTF-8 text: full of zero bytes, so perhaps UTF-16, or not text",
        candidates=("utf-16-le", "utf-16-be"),
    )


def _by_few_zeros(start: bytes) -> Verdict | None:
    """Detect UTF-16 of a script without ASCII, whose blanks and line ends have zero bytes.

    In the wrong order of bytes a line feed is no character. The letters of some scripts have two
    bytes of ASCII, one of them a control character.
    """
    controls = sum(byte < 9 or 13 < byte < 27 for byte in start)
    if 0 not in start or (10 * controls < len(start) and _decodes(start, UTF8)):
        return None
    start = start[: len(start) // 4 * 4]
    fitting = [
        codec
        for codec in ("utf-16-le", "utf-16-be")
        if _decodes(start, codec)
        and all(sign.isprintable() or sign.isspace() for sign in start.decode(codec, "ignore"))
    ]
    if len(fitting) != 1:
        return None
    return Verdict(codec=fitting[0], guessed="its line ends and blanks are those of UTF-16")


def _by_switches(block: bytes) -> Verdict | None:
    """Detect an encoding of seven bits by its marks; None without any."""
    if b"\x1b" not in block:
        return None
    for codec, marks in _SWITCHING.items():
        mark = marks.search(block)
        if mark is not None and _decodes(block[mark.start() :], codec):
            return Verdict(codec=codec, guessed="it has escape sequences of that encoding")
    return None


def _decodes(data: bytes, codec: str) -> bool:
    try:
        # not final: the data may end in the middle of a character
        codecs.getincrementaldecoder(codec)().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _declared(head: bytes) -> str | None:
    """Return the codec declared at the beginning of an XML or HTML file."""
    match = _DECLARED.search(head[:4096]) if head[:4096].lstrip().startswith(b"<") else None
    try:
        codec = codec_named((match[1] or match[2]).decode()) if match else None
    except ConfigError:
        return None
    return None if codec is None or is_wide(codec) else _BROWSER_CODECS.get(codec, codec)


def _by_sample(sample: bytes, multibyte: int, declared: str | None) -> Verdict:
    text = sample.decode(UTF8, "surrogateescape")
    escaped = sum("\udc80" <= letter <= "\udcff" for letter in text)
    # bytes of the sample that belong to valid multi-byte characters
    valid = max(multibyte, len(sample) - len(text))
    if valid > escaped:
        return Verdict(codec=UTF8)
    # in EUC-JP two syllables in five are valid UTF-8 by chance
    many = 2 * valid > escaped
    if not many and declared not in (None, UTF8) and _decodes(sample, declared):
        return Verdict(codec=declared)
    guess = guess_codec(sample)
    if guess.codec is not None and (50 * valid <= escaped or not guess.latin):
        return Verdict(codec=guess.codec, guessed=f"it is not UTF-8, and reads as {guess.language}")
    # as UTF-8, invalid lines are refused one by one
    return Verdict(codec=UTF8, candidates=guess.plausible)


def print_guess(path: Path, verdict: Verdict, more: int = 0) -> None:
    """Report the guessed or doubted encoding of a file, and of how many more files."""
    others = f" and {counted(more, 'more file')}" if more else ""
    reason = verdict.doubt or f"{verdict.guessed}; {OPTION} names another"
    say(f"{path}{others}: read as {verdict.codec}: {reason}")


class Guesses:
    """The guesses about many files, by encoding: first file, its verdict, number of files."""

    def __init__(self, *, first_at_once: bool = False) -> None:
        """Report all guesses at the end or, for each encoding, the first at once."""
        self._first_at_once = first_at_once
        self._found: dict[str | None, tuple[Path, Verdict, int]] = {}

    def add(self, path: Path, verdict: Verdict) -> None:
        """Add the guess about one more file."""
        first, kept, count = self._found.get(verdict.codec, (path, verdict, 0))
        if self._first_at_once and not count:
            print_guess(path, verdict)
        if self._first_at_once and count == 1:
            first = path
        self._found[verdict.codec] = (first, kept, count + 1)

    def print(self) -> None:
        """Report the guesses not yet reported, in one line per encoding."""
        for first, verdict, count in self._found.values():
            if not self._first_at_once:
                print_guess(first, verdict, count - 1)
            elif count > 1:
                print_guess(first, verdict, count - 2)
