"""Documents, and how lines of plain text become documents and paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bertsmith.core.config import Config

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

    Such are the paragraphs of a `bertsmith.text.corpus.documents.Document`.
    """
    if not text:
        return TextSize()
    blanks = text.count(" ")
    unspaced = 0 if text.isascii() else sum(map(len, _UNSPACED.findall(text)))
    return TextSize(words=blanks + 1, characters=len(text) - blanks, unspaced=unspaced)


LONGEST_DOCUMENT = 4_000_000
LONGEST_PARAGRAPH = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A piece of text whose sentences follow each other.

    `source` and `line` (from 1; of a table, the row) say where it begins. A paragraph has no line
    ends, single spaces between its words, none around them, and is never empty.
    """

    source: str
    line: int
    paragraphs: tuple[str, ...]


def tidy(text: str) -> str:
    """The text with single spaces for white space, without zero bytes and half characters."""
    if text.isprintable() and "  " not in text and text[:1] != " " != text[-1:]:
        return text  # the space is the only printable white space; many times faster than splitting
    text = " ".join(text.replace("\0", "").split())
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON can write half of a surrogate pair, which no encoder takes
        return text.encode("utf-8", "replace").decode()
    return text


def tidy_places(text: str) -> list[int]:
    """Return where each character of the tidy text stands in the text; spaces at a run's first."""
    places: list[int] = []
    after_word = False
    for place, letter in enumerate(text):
        if letter == "\0":
            continue
        if not letter.isspace() or after_word:
            places.append(place)
        after_word = not letter.isspace()
    if places and text[places[-1]].isspace():
        places.pop()
    return places


@dataclass(slots=True)
class Gathering:
    """Collects the paragraphs of one source into documents of bounded size.

    A document of more than 4 million characters is delivered in parts, each a document.
    """

    source: str
    line: int = 0
    characters: int = 0
    _paragraphs: list[str] = field(default_factory=list)

    def add(self, line: int, paragraph: str) -> bool:
        """Add a paragraph; True when the document has become too long to go on."""
        paragraph = tidy(paragraph)
        if paragraph:
            if not self._paragraphs:
                self.line = line
            self._paragraphs.append(paragraph)
            self.characters += len(paragraph)
        return self.characters >= LONGEST_DOCUMENT

    def end(self) -> Iterator[Document]:
        """The document that has been gathered, if any; the next one begins empty."""
        if self._paragraphs:
            paragraphs = tuple(self._paragraphs)
            self._paragraphs, self.characters = [], 0
            yield Document(source=self.source, line=self.line, paragraphs=paragraphs)


def documents_of_text(texts: Iterable[tuple[int, str]], source: str) -> Iterator[Document]:
    """One document a text; its lines are the paragraphs."""
    gathering = Gathering(source)
    for line, text in texts:
        for paragraph in text.splitlines():
            for start in range(0, len(paragraph), LONGEST_PARAGRAPH):
                if gathering.add(line, paragraph[start : start + LONGEST_PARAGRAPH]):
                    yield from gathering.end()
        yield from gathering.end()
