"""The layouts of plain text files: what a line and a blank line mean.

    documents   Google's format: a sentence or paragraph a line, a blank line between documents
    prose       a paragraph a line; blank lines, if any, stand between paragraphs
    wrapped     paragraphs broken into lines of even width, which are joined again; a paragraph
                ends at a blank line, before an indented line, or, unless a small letter follows,
                at a line too short for its place: one that closes a sentence although the next
                word would have fitted in, or one of less than half the width (headings)

In prose and wrapped text the file is a document, but longer runs of blank lines end one: as many
as at most a third of the runs have, two at least. What ends before 200 characters, a heading
mostly, belongs to what follows. A word broken by a hyphen at a line's end keeps the hyphen.

`auto` looks at the first 256 K characters of each file:

1. wrapped, when the lines are of even width (nine in ten have at most W characters, W from 40 to
   120, and half have at least 0.7 W) and a third or more of the lines that are directly followed
   by another do not end in a stop;
2. else prose, when at least half of the blocks between blank lines are a single line;
3. else documents. A file without blank lines is one document, whichever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

from bertsmith.text.documents import LONGEST_PARAGRAPH, Document, Gathering

Layout = Literal["auto", "documents", "prose", "wrapped"]
Line = tuple[int, str]

SAMPLE_CHARACTERS = 1 << 18
HEADING_CHARACTERS = 200
_ENDS_SENTENCE = re.compile(r"[.!?:;。！？…][\"'”’»)\]]*$")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The layout, the width of wrapped lines, and how many blank lines end a document."""

    layout: Layout
    width: int
    gap: int


def measure(sample: list[str], layout: Layout) -> Shape:
    """Settle the layout of the lines of a sample by the rule at the head of this module."""
    lines = [line.strip() for line in sample]
    lengths = sorted(len(line) for line in lines if line) or [0]
    width, middle = lengths[len(lengths) * 9 // 10], lengths[len(lengths) // 2]
    blocks, gaps = _runs(lines)
    if layout == "auto":
        even = 40 <= width <= 120 and middle >= 0.7 * width
        singles = sum(length == 1 for length in blocks)
        if even and _continued(lines) >= 1 / 3:
            layout = "wrapped"
        else:
            layout = "prose" if 2 * singles >= len(blocks) else "documents"
    gap = 2
    while 3 * sum(length >= gap for length in gaps) > len(gaps):
        gap += 1
    return Shape(layout=layout, width=width, gap=1 if layout == "documents" else gap)


def _runs(lines: list[str]) -> tuple[list[int], list[int]]:
    """Lengths of the runs of lines with text, and of the runs of blank lines between them."""
    blocks: list[int] = []
    gaps: list[int] = []
    blank = True
    for line in lines:
        runs = blocks if line else gaps
        if bool(line) == blank and (blocks or line):
            runs.append(0)
        if runs:
            runs[-1] += 1
        blank = not line
    return blocks, gaps


def _continued(lines: list[str]) -> float:
    """Share of the lines directly followed by another that do not end in a stop."""
    followed = [line for line, after in pairwise(lines) if line and after]
    return sum(not _ENDS_SENTENCE.search(line) for line in followed) / max(1, len(followed))


def documents_of_lines(lines: Iterable[Line], source: str, layout: Layout) -> Iterator[Document]:
    """Documents of a plain text file, from its numbered lines; in constant memory."""
    lines = iter(lines)
    sample: list[Line] = []
    seen = 0
    for line in lines:
        sample.append(line)
        seen += len(line[1]) + 1
        if seen >= SAMPLE_CHARACTERS:
            break
    shape = measure([text for _, text in sample], layout)
    every = chain(sample, lines)
    paragraphs = _joined(every, shape.width) if shape.layout == "wrapped" else every
    shortest = 1 if shape.layout == "documents" else HEADING_CHARACTERS
    gathering = Gathering(source)
    blanks = 0
    for number, text in paragraphs:
        if not text or text.isspace():
            blanks += 1
            if blanks == shape.gap and gathering.characters >= shortest:
                yield from gathering.end()
            continue
        blanks = 0
        yield from gathering.add(number, text)
    yield from gathering.end()


def _joined(lines: Iterable[Line], width: int) -> Iterator[Line]:
    """Paragraphs of wrapped lines, each with the number of its first line; blank lines as such."""
    parts: list[str] = []
    start = length = 0
    indented = False
    for number, text in lines:
        line = text.strip()
        indent = text[:1].isspace() and text[:2].isspace()
        begins = indent and not indented
        indented = indent
        if parts and (
            not line or begins or length > LONGEST_PARAGRAPH or _is_last(parts[-1], line, width)
        ):
            yield start, "".join(parts)
            parts = []
        if not line:
            yield number, ""
            continue
        if not parts:
            start = number
            length = 0
        else:
            parts.append(_seam(parts, line))
        parts.append(line)
        length += len(line)
    if parts:
        yield start, "".join(parts)


def _is_last(line: str, after: str, width: int) -> bool:
    """Whether a line is too short for its place, so that its paragraph ends with it."""
    if after[0].islower():
        return False
    if 2 * len(line) < width:
        return True
    room = width - len(line) - 1
    return room >= len(after.split(maxsplit=1)[0]) and bool(_ENDS_SENTENCE.search(line))


def _seam(parts: list[str], after: str) -> str:
    """What stands between two lines of one paragraph: nothing after a hyphen or between CJK."""
    line = parts[-1]
    if line.endswith("\u00ad"):
        parts[-1] = line[:-1]
        return ""
    hyphen = line.endswith(("-", "\u2010")) and line[-2:-1].isalpha() and after[0].isalpha()
    return "" if hyphen or (_CJK.match(line[-1]) and _CJK.match(after[0])) else " "
