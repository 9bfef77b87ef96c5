"""Text to the words that byte-pair encoding cuts, by RoBERTa's rules.

They are those of `transformers` 4.57's RobertaTokenizer: a word takes the blank before it along,
letters, digits and marks part, English contractions are words. What a letter or a digit is says
the running Python: code points that its Unicode does not know yet are marks.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from bertsmith.config import Config

_WORD: Final = re.compile(
    r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9\t-\r ]+"
    r"|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+"
)
_BLANKS: Final = "\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
WHITE_SPACE: Final = "\t\n\x0b\x0c\r " + _BLANKS
"""White space as Unicode has it, which is not quite Python's."""


@dataclass(frozen=True, kw_only=True)
class ByteRules(Config):
    """How text becomes pieces of bytes."""

    merges: tuple[tuple[str, str], ...]
    """The pairs that are joined, in the order in which they were learned."""
    prefix_blank: bool = False
    """Put a blank before a text that begins with none."""
    prefix_parts: bool = False
    """Put it before each part between special tokens, as the fast tokenizers do."""
    mask_takes_blank: bool = True
    """The blanks before a literal mask belong to it."""


def word_ends(text: str) -> list[int]:
    """Where the words of a text end, in characters; each begins where the one before ends."""
    return [found.end() for found in _WORD.finditer(_outline(text))]


def words(text: str) -> list[str]:
    """The words of a text, which together are the whole of it."""
    if text.isascii():
        return _WORD.findall(text)
    ends = word_ends(text)
    return [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _outline(text: str) -> str:
    """A text of as many characters of ASCII, letter for letter and mark for mark."""
    return text if text.isascii() else text.translate(_OUTLINES)


class _Outlines(dict[int, str]):
    """The character of ASCII for each code point, worked out when first met."""

    def __missing__(self, code: int) -> str:
        self[code] = outline = _outlined(chr(code))
        return outline


_OUTLINES: Final = _Outlines()


def _outlined(character: str) -> str:
    if character.isascii():
        return character
    if character in _BLANKS:
        return "\t"
    kind = unicodedata.category(character)[0]
    # letters of no contraction
    return {"L": "x", "N": "0"}.get(kind, "!")
