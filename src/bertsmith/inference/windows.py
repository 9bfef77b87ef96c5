"""A stream in windows of bounded size, so that memory does not grow with the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from bertsmith.text.example import Example

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
