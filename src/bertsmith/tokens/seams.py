"""Where a text in bytes is cut into chunks that can be encoded each by itself."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bertsmith.text.sentences import CJK_STOPS, sentence_starts
from bertsmith.tokens.basic import CJK_RANGES
from bertsmith.tokens.chunks import Integers

DOCUMENT: Final = 0
CUT: Final = 1
PARAGRAPH: Final = 10
BLANK: Final = 32

_IDEOGRAPH, _STOP = 1, 2
_FIRST_LEAD = 0xE3  # of the UTF-8 of every ideograph and CJK stop, and of no quote or dash


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """A text cut at blanks, around ideographs, and where CJK stops end a sentence.

    `starts`, `ends` (chunks,) in bytes; `after` (chunks,) what follows each: the byte that ends a
    document or paragraph, a blank, or nothing (`CUT`). `paragraph_ends` (paragraphs,) are numbers
    of chunks. `settled` are the paragraphs with CJK stops, in which the sentences but for the first
    begin at the bytes `sentences`.
    """

    starts: Integers
    ends: Integers
    after: NDArray[np.uint8]
    paragraph_ends: Integers
    settled: Integers
    sentences: Integers


def cut_at_seams(data: bytes, *, ideographs: bool) -> Chunks:
    """Cut documents (parted by zero bytes) of paragraphs (by line feeds) of words (by blanks).

    With `ideographs` each CJK ideograph is a chunk of its own, as the rules would have it.
    """
    text = np.frombuffer(data, np.uint8)
    parts = (text == BLANK) | (text == PARAGRAPH) | (text == DOCUMENT)
    settled = sentences = np.zeros(0, np.int64)
    is_end = parts
    if len(text) and text.max() >= _FIRST_LEAD:
        places, sizes, kinds = _cjk(text)
        settled, sentences = _settled(data, text, places[kinds == _STOP])
        cuts = [sentences]
        if ideographs:
            found = kinds == _IDEOGRAPH
            cuts += [places[found], places[found] + sizes[found]]
        is_end = parts | _cut_between(parts, np.concatenate(cuts))
    ends = np.append(np.flatnonzero(is_end), len(text))
    inner = ends[:-1]
    parted = parts[inner]
    after = np.append(np.where(parted, text[inner], np.uint8(CUT)), np.uint8(DOCUMENT))
    return Chunks(
        starts=np.concatenate([[0], inner + parted]),
        ends=ends,
        after=after,
        paragraph_ends=np.flatnonzero((after == PARAGRAPH) | (after == DOCUMENT)),
        settled=settled,
        sentences=sentences,
    )


def sentences_in(data: bytes, start: int, end: int) -> list[int]:
    """Where the sentences of the paragraph data[start:end] begin, but for the first, in bytes."""
    text = data[start:end].decode("utf-8", "surrogatepass")
    places, before = [], 0
    for first in sentence_starts(text):
        start += len(text[before:first].encode("utf-8", "surrogatepass"))
        before = first
        places.append(start)
    return places


def _settled(data: bytes, text: NDArray[np.uint8], stops: Integers) -> tuple[Integers, Integers]:
    """The paragraphs with CJK stops, and where sentences in them begin."""
    if not len(stops):
        return stops, stops
    bounds = np.flatnonzero((text == PARAGRAPH) | (text == DOCUMENT))
    settled = np.unique(np.searchsorted(bounds, stops))
    starts = np.concatenate([[0], bounds + 1])[settled].tolist()
    ends = np.append(bounds, len(text))[settled].tolist()
    found = [place for a, b in zip(starts, ends, strict=True) for place in sentences_in(data, a, b)]
    return settled, np.array(found, np.int64)


def _cut_between(parts: NDArray[np.bool_], places: Integers) -> NDArray[np.bool_]:
    """Which of some places to cut at: none beside a blank, where there is a seam already."""
    cut = np.zeros(len(parts) + 1, np.bool_)
    cut[places] = True
    cut[0] = False
    cut[1:] &= ~parts
    return cut[:-1] & ~parts


def _cjk(text: NDArray[np.uint8]) -> tuple[Integers, Integers, NDArray[np.uint8]]:
    """Places of characters from U+3000 up, their sizes in bytes, and what they are."""
    places = np.flatnonzero(text >= _FIRST_LEAD)
    padded = np.append(text, np.zeros(3, np.uint8))
    first, second, third, fourth = (padded[places + i].astype(np.int32) for i in range(4))
    long = first >= 0xF0
    code = (first & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F
    code = np.where(long, (code << 6 | fourth & 0x3F) & 0x1FFFFF, code)
    return places, 3 + long.astype(np.int64), _kinds()[code]


@cache
def _kinds() -> NDArray[np.uint8]:
    """For each code point, whether it is an ideograph or a stop."""
    kinds = np.zeros(0x200000, np.uint8)
    for first, last in CJK_RANGES:
        for code in range(first, last + 1):
            # one that is not assigned is taken out like a control character
            kinds[code] = _IDEOGRAPH * (unicodedata.category(chr(code)) != "Cn")
    kinds[[ord(stop) for stop in CJK_STOPS]] = _STOP
    return kinds
