"""The layouts of plain text files: the meaning of lines and blank lines.

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

1. wrapped, if the lines are of even width (90 % have at most W characters, W from 40 to 120, and
   half have at least 0.7 W) and at least a third of the lines directly followed by another do not
   end in a stop;
2. else prose, if at least half of the blocks between blank lines are a single line;
3. else documents. A file without blank lines is one document in each case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import Literal

from bertsmith.text.corpus.documents import LONGEST_PARAGRAPH, Document, Gathering
from bertsmith.text.opening import with_line_feeds

Layout = Literal["auto", "documents", "prose", "wrapped"]
Line = tuple[int, str]

SAMPLE_CHARACTERS = 1 << 18
HEADING_CHARACTERS = 200
_STOPS = ".!?:;。！？…؟۔।॥։።။។៕"
_CLOSING = "\"'”’»)]"
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The layout, the width of wrapped lines, and the number of blank lines that end a document."""

    layout: Layout
    width: int
    gap: int


def measure(sample: list[str], layout: Layout) -> Shape:
    """Detect the layout of sampled lines by the rules in the docstring of this module."""
    lines = [line.strip() for line in sample]
    lengths = sorted(len(line) for line in lines if line) or [0]
    width, median = lengths[len(lengths) * 9 // 10], lengths[len(lengths) // 2]
    blocks, gaps = _runs(lines)
    if layout == "auto":
        even = 40 <= width <= 120 and median >= 0.7 * width
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


def _ends_sentence(line: str) -> bool:
    last = line.rstrip(_CLOSING)[-1:]
    return last != "" and last in _STOPS


def measure_start(head: bytes, layout: Layout) -> Shape:
    """Detect the layout of a file from its first bytes."""
    text = with_line_feeds(head.decode("utf-8", "replace").removeprefix("\ufeff"))
    # up to the line that fills the sample, as in `documents_of_lines`
    end = text.find("\n", SAMPLE_CHARACTERS - 1)
    sample = text.removesuffix("\n") if end < 0 else text[:end]
    return measure(sample.split("\n"), layout)


def documents_of_lines(lines: Iterable[Line], source: str, layout: Layout) -> Iterator[Document]:
    """Yield the documents of a plain text file from its numbered lines, in constant memory."""
    lines = iter(lines)
    sample: list[Line] = []
    seen = 0
    for line in lines:
        sample.append(line)
        seen += len(line[1]) + 1
        if seen >= SAMPLE_CHARACTERS:
            break
    shape = measure([text for _, text in sample], layout)
    return documents_of_shape(chain(sample, lines), source, shape)


def documents_of_shape(lines: Iterable[Line], source: str, shape: Shape) -> Iterator[Document]:
    """Yield the documents of numbered lines of a known layout."""
    paragraphs = _joined(lines, shape.width) if shape.layout == "wrapped" else lines
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
        if gathering.add(number, text):
            yield from gathering.end()
    yield from gathering.end()


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
        if parts and (not line or begins or length > LONGEST_PARAGRAPH or _ends(last, line, width)):
            yield start, " ".join(parts)
            parts = []
        if not line:
            yield number, ""
            continue
        if not parts:
            start, length = number, 0
            parts.append(line)
        elif last[-1].isascii() and last[-1] != "-":
            parts.append(line)
        else:
            _append_line(parts, line)
        last = line
        length += len(line)
    if parts:
        yield start, " ".join(parts)


def _ends(line: str, after: str, width: int) -> bool:
    """Return whether a line is so short that its paragraph ends with it."""
    if after[0].islower():
        return False
    size = len(line)
    if 2 * size < width:
        return True
    return (
        size + 1 < width and _ends_sentence(line) and width - size > len(after.split(maxsplit=1)[0])
    )


def _append_line(parts: list[str], after: str) -> None:
    """Append a line: without a space after a hyphen or between CJK characters."""
    line = parts[-1]
    if line.endswith("\u00ad"):
        parts[-1] = line[:-1] + after
        return
    hyphen = line.endswith(("-", "\u2010")) and line[-2:-1].isalpha() and after[0].isalpha()
    if hyphen or (_CJK.match(line[-1]) and _CJK.match(after[0])):
        parts[-1] = line + after
    else:
        parts.append(after)
