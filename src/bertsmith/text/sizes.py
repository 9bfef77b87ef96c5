"""The size of a text in words and characters, for scripts with and without blanks between words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bertsmith.config import Config

# Thai, Lao, Tibetan, Burmese, Khmer, Tai scripts, Javanese, kana, Han
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua980-\ua9df\uaa60-\uaa7f"
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"
    "\U00020000-\U0003134f]+"
)


@dataclass(frozen=True, kw_only=True)
class TextSize(Config):
    """Words and characters of some text.

    Words are what white space separates, whatever the script. Characters do not include white
    space. `unspaced` of the characters belong to scripts written without blanks between words.
    """

    words: int = 0
    """Stretches between white space."""
    characters: int = 0
    """Characters other than white space."""
    unspaced: int = 0
    """Characters of Han, kana, Thai, Khmer and other scripts without blanks between words."""

    def __add__(self, other: TextSize) -> TextSize:
        return TextSize(
            words=self.words + other.words,
            characters=self.characters + other.characters,
            unspaced=self.unspaced + other.unspaced,
        )

    def __mul__(self, times: int) -> TextSize:
        return TextSize(
            words=self.words * times,
            characters=self.characters * times,
            unspaced=self.unspaced * times,
        )


def size_of(text: str) -> TextSize:
    """Return the size of a text without line ends, its words separated by single blanks.

    Such are the paragraphs of a `bertsmith.text.documents.Document`.
    """
    if not text:
        return TextSize()
    blanks = text.count(" ")
    unspaced = 0 if text.isascii() else sum(map(len, _UNSPACED.findall(text)))
    return TextSize(words=blanks + 1, characters=len(text) - blanks, unspaced=unspaced)
