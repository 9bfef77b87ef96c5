"""A text as the sequences that a model reads of it: its beginning, or all of it in windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import encode_examples
from bertsmith.batches.fitting import Ids, Segments, encode_pair
from bertsmith.core.errors import ExampleError
from bertsmith.engine.config import Long
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

ROWS = 2048
_CHARACTERS = 4_000_000

T = TypeVar("T")


def windows(rows: Iterable[T], most: int, characters: Callable[[T], int]) -> Iterator[list[T]]:
    """Lists of at most `most` rows, fewer when their texts are very long."""
    window: list[T] = []
    length = 0
    for row in rows:
        window.append(row)
        length += characters(row)
        if len(window) >= most or length >= _CHARACTERS:
            yield window
            window, length = [], 0
    if window:
        yield window


def text_length(example: Example) -> int:
    """The characters of a text or pair."""
    return len(example.text) + len(example.text_pair or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadText:
    """A text as sequences of token ids with the special tokens around each.

    `ids` and `segments` are (length,) a sequence; `spans` (tokens, 2) are the characters of the
    tokens that are read, without special ones, None where nobody asked. `left_out` tokens were not.
    """

    ids: list[Ids]
    segments: list[Segments]
    spans: NDArray[np.int64] | None
    left_out: int

    @property
    def tokens(self) -> int:
        """Tokens that are read, special ones included."""
        return sum(map(len, self.ids))


def read_text(
    tokenizer: Tokenizer, example: Example, *, longest: int, long: Long, spans: bool
) -> ReadText:
    """Cut a text to `longest` tokens a sequence; all of it is read if `long` is "windows".

    Windows are of about one length, and begin where words do as far as possible. Raises
    `ExampleError` for a pair of texts that would have to be told apart.
    """
    if example.text_pair is not None:
        return _read_pair(tokenizer, example, longest=longest, alone=spans or long == "windows")
    places = None
    if spans:
        encoding = tokenizer.encode_spans(example.text)
        found = encoding.ids
        places = np.stack([encoding.starts, encoding.ends], axis=1).astype(np.int64)
    else:
        (found,) = tokenizer.encode([example.text])
    parts = [found[: longest - 2]]
    if long == "windows":
        edges = window_edges(tokenizer.continues[found], longest - 2)
        parts = [found[begin:end] for begin, end in pairwise(edges)]
    read = sum(map(len, parts))
    sequences = [encode_pair(tokenizer, part, None, longest=longest) for part in parts]
    return ReadText(
        ids=[ids for ids, _ in sequences],
        segments=[segments for _, segments in sequences],
        spans=None if places is None else places[:read],
        left_out=len(found) - read,
    )


def _read_pair(tokenizer: Tokenizer, example: Example, *, longest: int, alone: bool) -> ReadText:
    if alone:
        raise ExampleError(
            "is a pair of texts; words, tokens and windows are those of one",
            where=example.source,
            line=example.line,
            remedy="name its column with --text-column",
        )
    encoded = encode_examples(tokenizer, [example.text], [example.text_pair], longest=longest)
    left_out = 0
    if encoded.cut[0]:
        whole = tokenizer.encode([example.text, example.text_pair or ""])
        left_out = sum(map(len, whole)) + tokenizer.specials_around(pair=True) - longest
    return ReadText(ids=encoded.ids, segments=encoded.segments, spans=None, left_out=left_out)


def window_edges(continues: NDArray[np.bool_], longest: int) -> list[int]:
    """Return the start and end of windows of at most `longest` pieces; (pieces,) marks those inside
    words.

    All are of about one length; each begins with a word unless a word is too long.
    """
    edges = [0]
    while (rest := len(continues) - edges[-1]) > longest:
        begin = edges[-1]
        end = begin + -(-rest // -(-rest // longest))
        words = np.flatnonzero(~continues[begin + (end - begin) // 2 + 1 : end + 1])
        edges.append(begin + (end - begin) // 2 + 1 + int(words[-1]) if len(words) else end)
    return [*edges, len(continues)]
