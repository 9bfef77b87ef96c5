"""Splitting of text into words by the rules of BERT's BasicTokenizer.

Implemented in pure Python to guarantee equal ids: the rules are those of `transformers` 4.57's
BertTokenizer, step by step, with the Unicode tables of the running Python. Compiled tokenizers
contain tables of other Unicode versions and differ in places: no composition (NFC) in cased text,
unassigned code points kept, other categories for those assigned since. Where Google's original
differs from BertTokenizer (it lower-cases a final sigma by context), the latter is followed.

Devlin et al. 2019, appendix; the rules are in no paper, only in the released code.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from bertsmith.core.config import Config
from bertsmith.core.lazy import CharacterTable
from bertsmith.core.normal_forms import normalize
from bertsmith.tokens.added import AddedTokens

ASCII_REMOVED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
ASCII_WORD = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]")
_ASCII_MARK = re.compile(r"[!-/:-@\[-`{-~]")
_CJK_RANGES = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


def is_ideograph(character: str) -> bool:
    """Return whether a character is in a range of CJK ideographs."""
    return any(first <= ord(character) <= last for first, last in _CJK_RANGES)


def ideographs() -> list[int]:
    """Return the code points of CJK ideographs, each of which is a word, in order.

    Unassigned ones are left out: they are removed like control characters, and separate nothing.
    """
    return [
        code
        for first, last in _CJK_RANGES
        for code in range(first, last + 1)
        if unicodedata.category(chr(code)) != "Cn"
    ]


def code_ranges(codes: Iterable[int]) -> str:
    """Return ascending code points as ranges of a class in a regular expression."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


@dataclass(frozen=True, kw_only=True)
class BasicRules(Config):
    """The rules that split text into words before WordPiece."""

    lowercase: bool
    """Lower-case each character alone, without context."""
    strip_accents: bool | None = None
    """Drop combining marks after decomposition; None: as `lowercase`."""
    space_cjk: bool = True
    """Make each CJK ideograph a separate word."""
    slow: bool = True
    """Compose text (NFC) and drop code points that the running Python's version of Unicode does
    not contain, as only the slow BertTokenizer does.

    Otherwise, if accents are kept, a letter and a following mark remain two characters.
    """
    segments: bool = True
    """Give the second text of a pair segment 1."""
    added: AddedTokens | None = None
    """The tokens that are matched in text beforehand, if there are others than special ones."""

    @property
    def strips(self) -> bool:
        """Return whether accents are stripped."""
        return self.lowercase if self.strip_accents is None else self.strip_accents

    def words(self, text: str) -> list[str]:
        """Return the words and punctuation marks of any string, lone surrogates included."""
        if text.isascii():
            plain = ASCII_REMOVED.sub("", text.lower() if self.lowercase else text)
            return ASCII_WORD.findall(plain)
        return self.words_in(self.normalised(text))

    def normalised(self, text: str) -> str:
        """Return a text lower-cased and the like as set, before it is split into words."""
        return self._bare(self._clean(text))

    def words_in(self, normalised: str) -> list[str]:
        """Return the words and punctuation marks of a `normalised` text."""
        return normalised.translate(_spacing()).split()

    def words_keeping(self, text: str, kept: frozenset[str]) -> list[str]:
        """Return the words, keeping whole those in `kept`, before or after accents are stripped.

        BertTokenizer does so with special tokens that appear once control characters are removed.
        """
        words: list[str] = []
        for word in self._clean(text).split():
            bare = word if word in kept else self._bare(word)
            words += [bare] if bare in kept else bare.translate(_spacing()).split()
        return words

    def _clean(self, text: str) -> str:
        """Lower-case, remove control characters, separate CJK, and compose (NFC) if set."""
        cleaned = text.translate(self.cleaning())
        return normalize("NFC", cleaned) if self.slow else cleaned

    def cleaning(self) -> Mapping[int, str]:
        """Return the replacement of each character: lower-cased, blank, spaced or empty."""
        return _cleaning(self.lowercase, self.space_cjk, self.slow)

    def _bare(self, text: str) -> str:
        """Lower-case again, as composition may change case, and strip accents."""
        if self.lowercase:
            text = text.lower()
        if self.strips:
            return normalize("NFD", text).translate(_stripping())
        return text


@cache
def _cleaning(lowercase: bool, space_cjk: bool, drops_unassigned: bool) -> CharacterTable:
    dropped = ("Cc", "Cf", "Co", "Cs", *["Cn"] * drops_unassigned)

    def clean(character: str) -> str:
        lowered = character.lower() if lowercase else character
        return "".join(_cleaned(part, space_cjk, dropped) for part in lowered)

    return CharacterTable(clean)


def _cleaned(character: str, space_cjk: bool, dropped: Collection[str]) -> str:
    if character in "\t\n\r":
        return " "
    category = unicodedata.category(character)
    if character == "\ufffd" or category in dropped:
        return ""
    if category == "Zs":
        return " "
    if space_cjk and is_ideograph(character):
        return f" {character} "
    return character


@cache
def _stripping() -> CharacterTable:
    return CharacterTable(
        lambda character: "" if unicodedata.category(character) == "Mn" else character
    )


@cache
def _spacing() -> CharacterTable:
    return CharacterTable(
        lambda character: f" {character} " if is_punctuation(character) else character
    )


def is_punctuation(character: str) -> bool:
    """Return whether a character is punctuation, which is a word alone."""
    # ^, $, ` and the like are symbols in Unicode and punctuation in BERT
    return bool(_ASCII_MARK.match(character)) or unicodedata.category(character).startswith("P")
