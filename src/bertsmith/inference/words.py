"""The words of a text, and vectors of words from those of their pieces."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertsmith.tokens.basic import CJK_RANGES, is_punctuation

Words = Literal["blanks", "marks"]
Merging = Literal["mean", "first", "sum"]

_STRETCH = re.compile(r"\S+")


def word_spans(text: str, words: Words) -> NDArray[np.int64]:
    """Where each word begins and ends in a text, (words, 2).

    Words are parted by blanks; with "marks" every punctuation mark and every CJK ideograph is a
    word too, as in BERT's BasicTokenizer.
    """
    spans: list[tuple[int, int]] = []
    for stretch in _STRETCH.finditer(text):
        begin, end = stretch.span()
        if words == "marks":
            for place in range(begin, end):
                if _alone(text[place]):
                    spans += [(begin, place)] if begin < place else []
                    spans.append((place, place + 1))
                    begin = place + 1
        if begin < end:
            spans.append((begin, end))
    return np.array(spans, np.int64).reshape(-1, 2)


def _alone(character: str) -> bool:
    code = ord(character)
    return is_punctuation(character) or any(first <= code <= last for first, last in CJK_RANGES)


def merged(
    vectors: NDArray[np.float32],
    pieces: NDArray[np.int64],
    words: NDArray[np.int64],
    merging: Merging,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Vectors (words, width) of the words that pieces stand for, and the spans (words, 2) of these.

    `vectors` is (pieces, width), `pieces` (pieces, 2) their spans in the order of the text. A piece
    belongs to the word in which it begins, or to the next where that is a blank; a word without a
    piece, one that was cut off say, is left out.
    """
    if not len(pieces) or not len(words):
        return vectors[:0], words[:0]
    number = np.searchsorted(words[:, 1], pieces[:, 0], side="right")
    number = np.minimum(number, len(words) - 1)
    first = np.flatnonzero(np.diff(number, prepend=-1))
    spans = words[number[first]]
    if merging == "first":
        return vectors[first], spans
    sums = np.add.reduceat(vectors, first, axis=0)
    if merging == "sum":
        return sums, spans
    counts = np.diff(first, append=len(pieces)).astype(np.float32)
    return np.divide(sums, counts[:, None], dtype=np.float32), spans
