"""The words of texts in windows of pieces, each asked at its first piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.batches.truncation import encode_pair, window_of
from bertsmith.tasks.task import ReadingLimits
from bertsmith.text.examples.tagged import Tagged
from bertsmith.text.white_space import tidy, tidy_places
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import Encoding


@dataclass(frozen=True, kw_only=True)
class WordWindows:
    """The numbers of the words that are tagged in each window of a text, (words,).

    `inside` are the words inside a piece that begins with the word before them.
    """

    words: list[NDArray[np.int64]]
    inside: list[int]


def encode_words(
    tokenizer: Tokenizer, rows: Sequence[Tagged], limits: ReadingLimits
) -> EncodedExamples:
    """Encode a window as a unit; each word is asked in one, at its first piece.

    A word without any piece, of signs that the tokenizer drops, is asked nowhere. `WordWindows` are
    the sidecar.
    """
    windows, sidecar, positions = [], [], []
    inner = limits.longest - 2
    for row in rows:
        encoded = encode_text(tokenizer, row)
        first, inside = first_pieces(encoded, row)
        with_pieces = np.flatnonzero(first >= 0)
        beginnings = first[with_pieces]
        begins, window = window_of(len(encoded), inner, limits.overlap)
        words = []
        for number, begin in enumerate(begins):
            here = slice(*np.searchsorted(beginnings, (begin, begin + inner)).tolist())
            words.append(with_pieces[here][window[beginnings[here]] == number])
            positions.append(first[words[-1]] - begin + 1)
        windows.append(
            [
                encode_pair(
                    tokenizer, encoded.ids[begin : begin + inner], None, longest=limits.longest
                )
                for begin in begins
            ]
        )
        sidecar.append(WordWindows(words=words, inside=inside))
    return EncodedExamples.windows(windows, sidecar, positions=positions)


def encode_text(tokenizer: Tokenizer, row: Tagged) -> Encoding:
    """Return the pieces of a text, its white space read as single spaces, as that of all texts.

    Their positions are those in the text as it is, which entities in a file are of.
    """
    text = tidy(row.text)
    encoded = tokenizer.encode_spans(text)
    if text == row.text:
        return encoded
    places = np.array([*tidy_places(row.text), len(row.text)])
    starts, last = places[encoded.starts], np.maximum(encoded.ends - 1, 0)
    blank = np.array([character == " " for character in text], bool)
    # a piece that ends with a space takes all the white space; some pieces are of no character
    ends = np.where(blank[last], places[encoded.ends], places[last] + 1)
    ends = np.where(encoded.ends > encoded.starts, ends, starts)
    return replace(encoded, starts=starts.astype(np.int32), ends=ends.astype(np.int32))


def first_pieces(encoded: Encoding, row: Tagged) -> tuple[NDArray[np.int64], list[int]]:
    """Return each word's first piece (words,), -1 for none, and the words inside other pieces.

    The mark of the blank before a word, where it is a piece of its own, is the word's first, as in
    the `word_ids` of `transformers`.
    """
    first = np.full(len(row.words), -1, np.int64)
    if not len(encoded) or not len(row.words):
        return first, []
    starts = np.array([start for start, _ in row.words])
    ends = np.array([end for _, end in row.words])
    # a piece may begin with a blank before the word, or be empty in the text
    piece = np.searchsorted(encoded.ends, starts, side="right")
    has_piece = piece < len(encoded)
    has_piece[has_piece] = encoded.starts[piece[has_piece]] < ends[has_piece]
    first[has_piece] = piece[has_piece]
    inside = [
        word for word in range(1, len(first)) if first[word] >= 0 and first[word] == first[word - 1]
    ]
    first[inside] = -1
    after_blank = starts > np.concatenate(([-1], ends[:-1]))
    before = np.maximum(first - 1, 0)
    marked = after_blank & (first > 0) & (encoded.ends[before] == starts)
    marked &= encoded.starts[before] >= np.concatenate(([0], ends[:-1]))
    first[marked] -= 1
    return first, inside
