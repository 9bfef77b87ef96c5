"""Sentences of words as windows of tokens, each word asked in one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.pairs import encode_pair
from bertsmith.batches.text_windows import WindowedExamples, window_of
from bertsmith.recipes.tasks.task import Room
from bertsmith.text.tagged import Tagged
from bertsmith.tokens.spans import Encoding
from bertsmith.tokens.tokenizer import Tokenizer

Words = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class WordWindows(WindowedExamples):
    """Windows with the numbers of the `words` (places,) that are asked at their places.

    `shared` names, by row, the words inside a piece that begins with the word before them.
    """

    words: list[Words]
    shared: list[tuple[int, list[int]]]


def word_windows(
    tokenizer: Tokenizer,
    rows: Sequence[Tagged],
    tags: Sequence[Sequence[int]] | None,
    room: Room,
) -> WordWindows:
    """The windows of some rows, with the numbers of their words' `tags` if they are given.

    A word without any piece, of signs that the tokenizer drops, is asked nowhere.
    """
    ids, segments, owners, begins = [], [], [], []
    places, words, labels, long = [], [], [], []
    shared: list[tuple[int, list[int]]] = []
    inner = room.longest - 2
    for number, row in enumerate(rows):
        encoded = tokenizer.encode_spans(row.text)
        first, inside = _first_pieces(encoded, row)
        if inside:
            shared.append((number, inside))
        asked = np.flatnonzero(first >= 0)
        at = first[asked]
        starts, window = window_of(len(encoded), inner, room.overlap)
        for which, start in enumerate(starts):
            sequence, segment = encode_pair(
                tokenizer, encoded.ids[start : start + inner], None, longest=room.longest
            )
            here = slice(*np.searchsorted(at, (start, start + inner)).tolist())
            own = asked[here][window[at[here]] == which]
            ids.append(sequence)
            segments.append(segment)
            owners.append(number)
            begins.append(start)
            places.append((first[own] - start + 1).astype(np.int64))
            words.append(own.astype(np.int64))
            long.append(len(starts) > 1)
            if tags is not None:
                labels.append(np.array(tags[number], np.int64)[own])
    count = len(ids)
    return WordWindows(
        ids=ids,
        segments=segments,
        starts=np.arange(count + 1),
        cut=np.zeros(count, bool),
        long=np.array(long, bool),
        target="tag",
        labels=labels if tags is not None else None,
        places=places,
        rows=np.array(owners, np.int64),
        begins=np.array(begins, np.int64),
        offsets=np.ones(count, np.int64),
        words=words,
        shared=shared,
    )


def _first_pieces(encoded: Encoding, row: Tagged) -> tuple[NDArray[np.int64], list[int]]:
    """The first piece of each word (words,), -1 for none, and the words inside an earlier piece."""
    first = np.full(len(row.words), -1, np.int64)
    if not len(encoded) or not len(row.words):
        return first, []
    starts = np.array([start for start, _ in row.words])
    ends = np.array([end for _, end in row.words])
    # a piece may begin with a blank before the word, or be empty in the text
    piece = np.searchsorted(encoded.ends, starts, side="right")
    there = piece < len(encoded)
    there[there] = encoded.starts[piece[there]] < ends[there]
    first[there] = piece[there]
    inside = [
        word for word in range(1, len(first)) if first[word] >= 0 and first[word] == first[word - 1]
    ]
    first[inside] = -1
    return first, inside
