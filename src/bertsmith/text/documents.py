"""Documents, and how lines of plain text become documents and paragraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

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
