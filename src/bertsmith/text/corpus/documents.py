"""Documents: their text normalisation, size, and assembly from paragraphs."""

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
    """The words and characters of a text.

    Words are separated by white space, whatever the script. Characters exclude white space;
    `unspaced` of them belong to scripts written without spaces between words.
    """

    words: int = 0
    """Number of runs of characters without white space."""
    characters: int = 0
    """Number of characters other than white space."""
    unspaced: int = 0
    """Number of characters of Han, kana, Thai, Khmer and other scripts without spaces."""

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
    """Return the size of a text without line ends, its words separated by single spaces.

    The paragraphs of a `Document` are such texts.
    """
    if not text:
        return TextSize()
    spaces = text.count(" ")
    unspaced = 0 if text.isascii() else sum(map(len, _UNSPACED.findall(text)))
    return TextSize(words=spaces + 1, characters=len(text) - spaces, unspaced=unspaced)


LONGEST_DOCUMENT = 4_000_000
LONGEST_PARAGRAPH = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A contiguous piece of text.

    `source` and `line` (from 1; of a table, the row) locate its beginning. A paragraph has no line
    ends, single spaces between its words, none around them, and is never empty.
    """

    source: str
    line: int
    paragraphs: tuple[str, ...]


def tidy(text: str) -> str:
    """Return the text with single spaces as white space, without NULs and lone surrogates."""
    if text.isprintable() and "  " not in text and text[:1] != " " != text[-1:]:
        return text  # the space is the only printable white space; many times faster than splitting
    text = " ".join(text.replace("\0", "").split())
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON can hold half of a surrogate pair, which cannot be encoded
        return text.encode("utf-8", "replace").decode()
    return text


def tidy_places(text: str) -> list[int]:
    """Return the offset of each tidy character in the text; of a space, that of its run's first."""
    places: list[int] = []
    after_word = False
    for offset, letter in enumerate(text):
        if letter == "\0":
            continue
        if not letter.isspace() or after_word:
            places.append(offset)
        after_word = not letter.isspace()
    if places and text[places[-1]].isspace():
        places.pop()
    return places


@dataclass(slots=True)
class Gathering:
    """A builder of documents of bounded size from the paragraphs of one source.

    A document of more than 4 million characters is split into several.
    """

    source: str
    line: int = 0
    characters: int = 0
    _paragraphs: list[str] = field(default_factory=list)

    def add(self, line: int, paragraph: str) -> bool:
        """Add a paragraph; return whether the document has reached its maximum length."""
        paragraph = tidy(paragraph)
        if paragraph:
            if not self._paragraphs:
                self.line = line
            self._paragraphs.append(paragraph)
            self.characters += len(paragraph)
        return self.characters >= LONGEST_DOCUMENT

    def end(self) -> Iterator[Document]:
        """Yield the document built so far, if any, and start an empty one."""
        if self._paragraphs:
            paragraphs = tuple(self._paragraphs)
            self._paragraphs, self.characters = [], 0
            yield Document(source=self.source, line=self.line, paragraphs=paragraphs)


def documents_of_text(texts: Iterable[tuple[int, str]], source: str) -> Iterator[Document]:
    """Yield one document per text; its lines are the paragraphs."""
    gathering = Gathering(source)
    for line, text in texts:
        for paragraph in text.splitlines():
            for start in range(0, len(paragraph), LONGEST_PARAGRAPH):
                if gathering.add(line, paragraph[start : start + LONGEST_PARAGRAPH]):
                    yield from gathering.end()
        yield from gathering.end()
