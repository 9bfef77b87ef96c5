"""Documents: their size, their assembly from paragraphs, and the layouts of plain text.

    documents   Google's format: a sentence or paragraph per line, a blank line between documents
    prose       a paragraph per line; blank lines, if any, separate paragraphs
    wrapped     paragraphs wrapped into lines of even width, which are joined again; a paragraph
                ends at a blank line, before an indented line, or, unless a lower-case letter
                follows, at a line that is too short: one that ends a sentence although the next
                word would have fitted, or one of less than half the width (headings)

In prose and wrapped text a file is one document, unless longer runs of blank lines end it: of a
length that at most a third of the runs have, at least two. Text that ends before 200 characters,
mostly a heading, belongs to what follows. A word hyphenated at a line's end keeps the hyphen.

`auto` examines the first 256 K characters of each file:

1. wrapped, if the lines are of even width (90 % have at most W columns, W from 40 to 120, and
   half have at least 0.7 W) and at least a third of the lines directly followed by another do not
   end in a stop; Han, kana and Hangul are two columns wide. But not if 90 % of the lines have a
   digit among their first ten characters, as the dated lines of a log;
2. else prose, if at least half of the blocks between blank lines are a single line;
3. else documents. A file without blank lines is one document in each case."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Literal

from bertsmith.core.config import Config
from bertsmith.text.config import Layout
from bertsmith.text.corpus.sentences import CJK_STOPS, CLOSES, SPACED_STOPS, is_small
from bertsmith.text.opening import cut_line, with_line_feeds
from bertsmith.text.white_space import UNSPACED, tidy


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

    @property
    def unit(self) -> Literal["word", "character"]:
        """Unit: characters if more than a quarter are of scripts without blanks between words."""
        return "character" if 4 * self.unspaced > self.characters else "word"

    @property
    def units(self) -> int:
        """Number of words, or of characters."""
        return self.words if self.unit == "word" else self.characters

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
    unspaced = 0 if text.isascii() else sum(map(len, UNSPACED.findall(text)))
    return TextSize(words=spaces + 1, characters=len(text) - spaces, unspaced=unspaced)


MAX_DOCUMENT_LENGTH = 4_000_000
MAX_PARAGRAPH_LENGTH = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A contiguous piece of text.

    `source` and `line` (from 1; of a table, the row) locate its beginning. A paragraph has no line
    ends, single spaces between its words, none around them, and is never empty.
    """

    source: str
    line: int
    paragraphs: tuple[str, ...]


@dataclass(slots=True)
class DocumentBuilder:
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
        return self.characters >= MAX_DOCUMENT_LENGTH

    def end(self) -> Iterator[Document]:
        """Yield the document built so far, if any, and start an empty one."""
        if self._paragraphs:
            paragraphs = tuple(self._paragraphs)
            self._paragraphs, self.characters = [], 0
            yield Document(source=self.source, line=self.line, paragraphs=paragraphs)


def documents_of_text(texts: Iterable[tuple[int, str]], source: str) -> Iterator[Document]:
    """Yield one document per text; its lines are the paragraphs."""
    builder = DocumentBuilder(source)
    for line, text in texts:
        for paragraph in text.splitlines():
            for part in cut_line(paragraph, MAX_PARAGRAPH_LENGTH):
                if builder.add(line, part):
                    yield from builder.end()
        yield from builder.end()


Line = tuple[int, str]

SAMPLE_CHARACTERS = 1 << 18
HEADING_CHARACTERS = 200
# share of lines that have a digit in their beginning, in characters
_RECORDS, _BEGINNING, _DIGIT = 0.9, 10, re.compile(r"\d")
_STOPS = frozenset(f"{SPACED_STOPS}{CJK_STOPS}:;：；")
_CLOSING = "".join(sorted(CLOSES))
_CJK = "\u3000-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60"
# lines of these are joined without a space: no word ends where they end
_JOINED = re.compile(f"[{_CJK}\uff61-\uffef]|{UNSPACED.pattern}")
# Han, kana, Hangul and most emoji
_WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf"
    "\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\U0001f300-\U0001f64f"
    "\U0001f900-\U0001f9ff\U00020000-\U0003fffd]+"
)
# a longer one says no more, and looking for it takes time by its square
_MAX_GAP = 50
_WIDEST_SIGN = 4  # columns: a mark that may not begin a line takes the sign before it along


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The layout, the columns of a wrapped line, and the blank lines that end a document."""

    layout: Layout
    width: int
    gap: int


def measure(sample: list[str], layout: Layout) -> Shape:
    """Detect the layout of sampled lines by the rules in the docstring of this module."""
    lines = [line.strip() for line in sample]
    lengths = sorted(_columns(line) for line in lines if line) or [0]
    width, median = lengths[len(lengths) * 9 // 10], lengths[len(lengths) // 2]
    blocks, gaps = _runs(lines)
    if layout == "auto":
        even = 40 <= width <= 120 and median >= 0.7 * width
        singles = sum(length == 1 for length in blocks)
        if even and _continued(lines) >= 1 / 3 and not _are_records(lines):
            layout = "wrapped"
        else:
            layout = "prose" if 2 * singles >= len(blocks) else "documents"
    gap = 2
    while gap < _MAX_GAP and 3 * sum(length >= gap for length in gaps) > len(gaps):
        gap += 1
    return Shape(layout=layout, width=width, gap=1 if layout == "documents" else gap)


def _runs(lines: list[str]) -> tuple[list[int], list[int]]:
    """Return the lengths of the runs of lines with text, and of the blank runs between them."""
    blocks: list[int] = []
    gaps: list[int] = []
    for filled, run in groupby(map(bool, lines)):
        if filled:
            blocks.append(sum(1 for _ in run))
        elif blocks:
            gaps.append(sum(1 for _ in run))
    return blocks, gaps


def _continued(lines: list[str]) -> float:
    """Return the share of lines directly followed by another that do not end in a stop."""
    followed = [line for line, after in pairwise(lines) if line and after]
    return sum(not _ends_sentence(line) for line in followed) / max(1, len(followed))


def _are_records(lines: list[str]) -> bool:
    """Return whether nearly all lines begin with a number, a date or the like."""
    filled = [line for line in lines if line]
    numbered = sum(_DIGIT.search(line[:_BEGINNING]) is not None for line in filled)
    return numbered >= _RECORDS * len(filled)


def _ends_sentence(line: str) -> bool:
    last = line.rstrip(_CLOSING)[-1:]
    return last != "" and last in _STOPS


def measure_start(head: bytes, layout: Layout) -> Shape:
    """Detect the layout of a file from its first bytes."""
    text = with_line_feeds(head.decode("utf-8", "replace").removeprefix("\ufeff"))
    # up to the line that fills the sample
    end = text.find("\n", SAMPLE_CHARACTERS - 1)
    sample = text.removesuffix("\n") if end < 0 else text[:end]
    return measure(sample.split("\n"), layout)


def documents_of_shape(lines: Iterable[Line], source: str, shape: Shape) -> Iterator[Document]:
    """Yield the documents of numbered lines of a known layout."""
    paragraphs = _joined(lines, shape.width) if shape.layout == "wrapped" else lines
    shortest = 1 if shape.layout == "documents" else HEADING_CHARACTERS
    builder = DocumentBuilder(source)
    blanks = 0
    for number, text in paragraphs:
        if not text or text.isspace():
            blanks += 1
            if blanks == shape.gap and builder.characters >= shortest:
                yield from builder.end()
            continue
        blanks = 0
        if builder.add(number, text):
            yield from builder.end()
    yield from builder.end()


def _joined(lines: Iterable[Line], width: int) -> Iterator[Line]:
    """Yield the paragraphs of wrapped lines with the number of the first line, and blank lines."""
    parts: list[str] = []
    last = ""
    start = length = 0
    indented = False
    for number, text in lines:
        line = text.strip()
        indent = len(line) < len(text) and text[:2].isspace()
        begins = indent and not indented
        indented = indent
        if parts and (
            not line or begins or length > MAX_PARAGRAPH_LENGTH or _ends(last, line, width)
        ):
            yield start, "".join(parts)
            parts = []
        if not line:
            yield number, ""
            continue
        if not parts:
            start, length = number, 0
            parts.append(line)
        elif last[-1].isascii() and last[-1] != "-":
            parts += (" ", line)
        else:
            _append_line(parts, line)
        last = line
        length += len(line)
    if parts:
        yield start, "".join(parts)


def _columns(line: str) -> int:
    """Return about the columns of a line; combining marks count as one, as in tools that wrap."""
    return len(line) if line.isascii() else len(line) + sum(map(len, _WIDE.findall(line)))


def _ends(line: str, after: str, width: int) -> bool:
    """Return whether a line is so short that its paragraph ends with it."""
    if is_small(after[0]):
        return False
    size = _columns(line)
    if 2 * size < width:
        return True
    if size + 1 >= width or not _ends_sentence(line):
        return False
    needed = _WIDEST_SIGN if _JOINED.match(after) else _columns(after.split(maxsplit=1)[0])
    return width - size > needed


def _append_line(parts: list[str], after: str) -> None:
    """Append a line: without a space after a hyphen or in a script without blanks."""
    line = parts[-1]
    if line.endswith("\u00ad"):
        parts[-1:] = (line[:-1], after)
        return
    hyphen = line.endswith(("-", "\u2010")) and line[-2:-1].isalpha() and after[0].isalpha()
    if hyphen or (_JOINED.match(line[-1]) and _JOINED.match(after[0])):
        parts.append(after)
    else:
        parts += (" ", after)
